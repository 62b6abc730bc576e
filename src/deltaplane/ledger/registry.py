"""What is registered by entry point: databases that can hold a ledger, and libraries that open its tables."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Any, cast

from deltaplane.errors import ConfigError
from deltaplane.ledger.stores.base import Store
from deltaplane.ledger.uri import LedgerUri

__all__ = ["OPENERS", "STORES", "open_store", "open_with", "registered_stores"]

STORES = "deltaplane.stores"
OPENERS = "deltaplane.openers"
"""Other libraries that open a published table: functions of location, version and storage options."""


def registered_stores() -> dict[str, EntryPoint]:
    """The stores by their engine's name."""
    return {entry.name: entry for entry in entry_points(group=STORES)}


def _own_store(engine: str) -> EntryPoint | None:
    """A store of this package's own: going through every installed package takes longer than a query."""
    try:
        own = distribution("deltaplane").entry_points
    except PackageNotFoundError:
        return None
    return next(iter(own.select(group=STORES, name=engine)), None)


def open_store(uri: LedgerUri) -> Store:
    """Open the database of an address.

    Raises:
        ConfigError: No store is registered under that name, or its driver is not installed.
    """
    entry = _own_store(uri.engine) or registered_stores().get(uri.engine)
    if entry is None:
        known = ", ".join(sorted(registered_stores())) or "none"
        raise ConfigError(
            f"No store is registered for the engine {uri.engine!r}. Registered: {known}. Correct the "
            f"address, or install the package that brings that store."
        )
    try:
        factory = entry.load()
    except ImportError as error:
        raise ConfigError(
            f"The driver of {uri.engine} is not installed ({error.name} is missing). Install it with: pip "
            f"install 'deltaplane[{uri.engine if uri.engine != 'sqlite' else 'ledger'}]'"
        ) from error
    return cast(Store, factory(uri))


def open_with(library: str, location: str, version: int | None, options: Mapping[str, str]) -> Any:
    """Open a published table with another library.

    Raises:
        ConfigError: The library is not installed.
    """
    for entry in entry_points(group=OPENERS, name=library):
        try:
            opener = entry.load()
        except ImportError as error:
            raise ConfigError(
                f"{library} is not installed ({error.name} is missing). Install it with: pip install "
                f"'deltaplane[embedded]'"
            ) from error
        return opener(location, version, dict(options))
    raise ConfigError(
        f"Nothing is registered that opens tables with {library}. Install 'deltaplane[embedded]'."
    )
