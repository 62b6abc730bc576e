"""The Delta protocol, pure: actions, replay, checkpoints, features, conflicts, statistics."""
