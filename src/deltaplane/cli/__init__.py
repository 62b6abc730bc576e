"""The command `deltaplane`."""

from deltaplane.cli.app import app, main

__all__ = ["app", "main"]
