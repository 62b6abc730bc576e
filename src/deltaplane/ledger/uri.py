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

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from deltaplane.errors import ConfigError

__all__ = ["SCHEME", "LedgerUri", "parse_uri"]

SCHEME = "deltasql"
_FILE_ENGINES = ("sqlite", "duckdb")
_SECRET_WORDS = ("password", "passwd", "secret", "token")
_BRACKETED = re.compile(r"\[[0-9a-fA-F:.]*(%\w+)?\]")  # [::1], an address whose colons mean no port
_UNREADABLE_PORT = re.compile(r":(?!\d+(?:[,/]|$))")
_SETTINGS = re.compile(r"[=\s]")
_SECRET_SETTING = re.compile(rf"(?:{'|'.join(_SECRET_WORDS)})\s*=", re.IGNORECASE)
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
    try:
        parts = urlsplit(text)
    except ValueError:
        # The library's message would repeat the address, and with it whatever secret stands in it.
        raise ConfigError(f"The ledger's address cannot be read. Write it like {_EXAMPLE}.") from None
    if parts.scheme != SCHEME or not parts.netloc:
        raise ConfigError(f"A ledger's address begins with {SCHEME}://ENGINE/. Write it like {_EXAMPLE}.")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise ConfigError(
            f"The engine comes first in a ledger's address and host and user after it. Write it like "
            f"{_EXAMPLE}."
        )
    target = unquote(parts.path[1:])
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if _carries_secret(parts.netloc, target, options, unquote(parts.fragment)):
        raise ConfigError(
            "The ledger's address carries a password. Take it out, and give it through PGPASSWORD, "
            "PGPASSFILE or ~/.pgpass, which PostgreSQL's own tools read as well."
        )
    if parts.netloc not in _FILE_ENGINES and _SETTINGS.search(target):
        # Nothing of it is repeated: one of the settings may be a password.
        raise ConfigError(
            "The ledger's address has settings, or white space, where user@host:port/dbname belongs. Nothing "
            f"was connected. Give settings after a '?', never a password. Write it like {_EXAMPLE}."
        )
    if not target:
        raise ConfigError(
            f"The ledger's address names no database after the engine. Write it like {_EXAMPLE}."
        )
    return LedgerUri(parts.netloc, target, options, unquote(parts.fragment) or None)


def _carries_secret(engine: str, target: str, options: Mapping[str, str], table: str) -> bool:
    """Whether something in an address is, or may be, a password.

    A password may hold any character, so that it is cut at the wrong place: everything after a ':' that is no
    port counts as one.
    """
    if any(word in key.lower() for key in options for word in _SECRET_WORDS):
        return True
    if engine in _FILE_ENGINES:
        return False
    if any(_SECRET_SETTING.search(text) for text in (target, *options.values(), table)):
        return True
    user, _, place = target.rpartition("@")
    return ":" in user or _UNREADABLE_PORT.search(_BRACKETED.sub("", place)) is not None
