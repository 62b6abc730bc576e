"""Which ledger a command works on, and what its log says meanwhile."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltaplane.cli.output import OutputFormat
from deltaplane.config import Config, load_config
from deltaplane.errors import ConfigError, LedgerSchemaError
from deltaplane.telemetry import LOGGER

if TYPE_CHECKING:
    from deltaplane.ledger import Ledger
    from deltaplane.ledger.stores.base import Store

__all__ = [
    "LedgerOption",
    "OutputOption",
    "TableArgument",
    "ledger_uri",
    "open_ledger",
    "open_store_only",
]

LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URI",
        help="The ledger, such as deltasql://sqlite//data/ledger.db; left out, what DELTAPLANE_LEDGER or "
        "deltaplane.toml names.",
    ),
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", help="For people or for machines.")]
TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table: its path, its name, or deltasql://…#NAME.")
]


@contextmanager
def open_ledger(asked: str | None, table: str | None = None, *, lasting: bool = False) -> Iterator[Ledger]:
    """Open the ledger that is meant, and show what it logs; only `ledger init` makes one.

    Args:
        asked: What --ledger says.
        table: The table that is meant; its address may name the ledger as well.
        lasting: The command runs for long, so its log has times and tells more.
    """
    config = load_config()
    uri = ledger_uri(asked, config, table)
    _need_extra()
    from deltaplane.ledger import connect

    _refuse_missing(uri)
    with connect(uri, author=config.author, create=False) as ledger, _logging_to_stderr(lasting):
        yield ledger


@contextmanager
def open_store_only(asked: str | None) -> Iterator[Store]:
    """Open the database whatever version its schema has, or without one."""
    uri = ledger_uri(asked, load_config())
    _need_extra()
    from deltaplane.ledger.registry import open_store
    from deltaplane.ledger.uri import parse_uri

    store = open_store(parse_uri(uri))
    try:
        yield store
    finally:
        store.close()


def ledger_uri(asked: str | None, config: Config, table: str | None = None) -> str:
    """The address of the ledger.

    Raises:
        ConfigError: Nobody named one.
    """
    named = table.partition("#")[0] if table and table.startswith("deltasql://") else None
    uri = asked or named or config.ledger.uri
    if not uri:
        raise ConfigError(
            "No ledger was named. Give --ledger deltasql://sqlite//data/ledger.db, set DELTAPLANE_LEDGER, or "
            "set uri under [ledger] in deltaplane.toml."
        )
    return uri


def _need_extra() -> None:
    try:
        import deltaplane.ledger  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"The ledger needs {error.name}, which is not installed. Install it with: pip install "
            f"'deltaplane[ledger]'"
        ) from error


def _refuse_missing(uri: str) -> None:
    """A mistyped path must not leave an empty database behind."""
    from deltaplane.ledger.uri import parse_uri

    parsed = parse_uri(uri)
    if parsed.engine in {"sqlite", "duckdb"} and not Path(parsed.target).exists():
        raise LedgerSchemaError(
            f"{parsed.target}: there is no such file, so there is no ledger. Nothing was made. Correct the "
            f"address, or make one with: deltaplane ledger init --ledger {parsed.without_table()}"
        )


@contextmanager
def _logging_to_stderr(lasting: bool) -> Iterator[None]:
    """Results are on stdout; what the library logs meanwhile is beside them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s" if lasting else "%(message)s"))
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO if lasting else level)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
