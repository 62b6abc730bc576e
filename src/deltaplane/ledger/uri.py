"""`deltasql://` addresses: which database holds the ledger, and which table of it is meant.

    deltasql://sqlite/relative.db                         a file beside the working directory
    deltasql://sqlite//abs/ledger.db                      a file by absolute path
    deltasql://duckdb//abs/ledger.duckdb
    deltasql://postgres/user@host:5432/dbname?sslmode=verify-full
    deltasql://sqlite//abs/ledger.db#sales.orders         a table

An address never carries a password: PostgreSQL's own conventions (PGPASSWORD, PGPASSFILE, ~/.pgpass,
PGSERVICE) do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from deltaplane.errors import ConfigError

__all__ = ["SCHEME", "LedgerUri", "parse_uri"]

SCHEME = "deltasql"
_EXAMPLE = "deltasql://sqlite//data/ledger.db, or deltasql://postgres/user@host:5432/dbname"


@dataclass(frozen=True)
class LedgerUri:
    """One address, taken apart.

    Attributes:
        engine: The database engine, under which a store is registered.
        target: What the engine opens: a file, or user@host:port/dbname.
        options: Settings of the connection.
        table: The name or path after '#', if there is one.
    """

    engine: str
    target: str
    options: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None

    def __str__(self) -> str:
        query = "&".join(f"{quote(k)}={quote(v, safe='/:')}" for k, v in self.options.items())
        fragment = f"#{quote(self.table, safe='/.:')}" if self.table else ""
        query = f"?{query}" if query else ""
        return f"{SCHEME}://{self.engine}/{quote(self.target, safe='/:@')}{query}{fragment}"

    def without_table(self) -> LedgerUri:
        """The address of the ledger itself."""
        return LedgerUri(self.engine, self.target, self.options)


def parse_uri(text: str) -> LedgerUri:
    """Read a `deltasql://` address.

    Raises:
        ConfigError: It is not one, or it carries a password. The message does not repeat the password.
    """
    parts = urlsplit(text)
    if parts.scheme != SCHEME or not parts.netloc:
        raise ConfigError(f"A ledger's address begins with {SCHEME}://ENGINE/. Write it like {_EXAMPLE}.")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise ConfigError(
            f"The engine comes first in a ledger's address and host and user after it. Write it like "
            f"{_EXAMPLE}."
        )
    target = unquote(parts.path[1:])
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    user, _, _ = target.rpartition("@")
    if (parts.netloc == "postgres" and ":" in user) or {"password", "passfile_content"} & options.keys():
        raise ConfigError(
            "The ledger's address carries a password. Take it out, and give it through PGPASSWORD, "
            "PGPASSFILE or "
            "~/.pgpass, which PostgreSQL's own tools read as well."
        )
    if not target:
        raise ConfigError(
            f"The ledger's address names no database after the engine. Write it like {_EXAMPLE}."
        )
    return LedgerUri(parts.netloc, target, options, unquote(parts.fragment) or None)
