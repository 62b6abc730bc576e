"""The behaviours of a transaction log, by what they are about."""
