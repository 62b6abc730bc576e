"""Which databases can hold a ledger: stores registered as entry points of the group `deltaplane.stores`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import cast

from deltaplane.errors import ConfigError
from deltaplane.ledger.stores.base import Store
from deltaplane.ledger.uri import LedgerUri

__all__ = ["STORES", "open_store", "registered_stores"]

STORES = "deltaplane.stores"


def registered_stores() -> dict[str, EntryPoint]:
    """The stores by their engine's name."""
    return {entry.name: entry for entry in entry_points(group=STORES)}


def open_store(uri: LedgerUri) -> Store:
    """Open the database of an address.

    Raises:
        ConfigError: No store is registered under that name, or its driver is not installed.
    """
    stores = registered_stores()
    entry = stores.get(uri.engine)
    if entry is None:
        known = ", ".join(sorted(stores)) or "none"
        raise ConfigError(
            f"No store is registered for the engine {uri.engine!r}. Registered: {known}. Correct the "
            f"address, or install "
            f"the package that brings that store."
        )
    try:
        factory = entry.load()
    except ImportError as error:
        raise ConfigError(
            f"The driver of {uri.engine} is not installed ({error.name} is missing). Install it with: pip "
            f"install "
            f"'deltaplane[{uri.engine if uri.engine != 'sqlite' else 'ledger'}]'"
        ) from error
    return cast(Store, factory(uri))
