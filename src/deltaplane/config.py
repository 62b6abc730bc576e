"""Settings: deltaplane.toml, overridden by the environment. Secrets belong in neither.

| key | environment | meaning |
|---|---|---|
| registry | DELTAPLANE_REGISTRY | MODULE:ATTRIBUTE of the registry |
| author | DELTAPLANE_AUTHOR | who is said to have made the changes |
| spark.master | DELTAPLANE_SPARK_MASTER | where Spark runs |
| spark.warehouse | DELTAPLANE_SPARK_WAREHOUSE | the folder of managed tables |
| spark.conf.<key> | DELTAPLANE_SPARK_CONF (JSON) | any Spark setting |
| catalogs.<declared> | DELTAPLANE_CATALOGS (JSON) | the engine's catalog for a declared one |
| waivers | | rules set aside, each with code, table, column and reason |
| ledger.uri | DELTAPLANE_LEDGER | the ledger's address, deltasql://… |
| ledger.alerts.max_lag_versions | | alert when more versions than this wait; false for never |
| ledger.alerts.max_lag_seconds | | alert when one waits longer than this; false for never |
| ledger.alerts.max_attempts | | alert when publication failed more often than this; false for never |
| ledger.alerts.frozen | | alert when a table is frozen for writes |
| ledger.alerts.failed | | alert when a table cannot be reconciled |
| ledger.alerts.webhook | DELTAPLANE_ALERT_WEBHOOK | where alerts are posted |
| ledger.alerts.webhook_env | | the name of another variable that holds that address |

The file is looked for in the working directory, or where DELTAPLANE_CONFIG points.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltaplane.errors import ConfigError, DeclarationError
from deltaplane.schema import Waiver
from deltaplane.schema.frozen import FrozenMap

__all__ = ["CONFIG_FILE", "AlertSettings", "Config", "LedgerSettings", "SparkSettings", "load_config"]

CONFIG_FILE = "deltaplane.toml"
_LIMITS = ("max_lag_versions", "max_lag_seconds", "max_attempts")
_SWITCHES = ("frozen", "failed")


@dataclass(frozen=True)
class SparkSettings:
    """How to start Spark."""

    master: str | None = None
    warehouse: str | None = None
    conf: Mapping[str, str] = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class AlertSettings:
    """When the ledger raises alerts, and where they go.

    Attributes:
        limits: The thresholds that are set, by name; None turns one off. The others keep their defaults.
        webhook: Where alerts are posted. It is often a secret by itself, so it is not shown.
    """

    limits: tuple[tuple[str, float | bool | None], ...] = ()
    webhook: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class LedgerSettings:
    """Where the ledger is."""

    uri: str | None = None
    alerts: AlertSettings = AlertSettings()


@dataclass(frozen=True)
class Config:
    """All settings, with the file they came from."""

    source: str = "the defaults"
    registry: str | None = None
    author: str | None = None
    spark: SparkSettings = SparkSettings()
    catalogs: Mapping[str, str] = field(default_factory=FrozenMap)
    waivers: tuple[Waiver, ...] = ()
    ledger: LedgerSettings = LedgerSettings()


def load_config(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Read the settings.

    Args:
        path: The file; left out, DELTAPLANE_CONFIG or deltaplane.toml of the working directory, if there is
            one.
        environ: The environment; left out, the process's own.

    Raises:
        ConfigError: A file or key is missing, unknown or of the wrong kind. Names the file, the key and the
            remedy.
    """
    environ = os.environ if environ is None else environ
    asked = path or environ.get("DELTAPLANE_CONFIG")
    file = Path(asked or CONFIG_FILE)
    if not file.is_file():
        if asked:
            raise ConfigError(f"{file}: there is no such file. Write one with: deltaplane init")
        return _from_content({}, "the environment", environ)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file}: it is not TOML: {error}. Correct the line, or start anew with: deltaplane init"
        ) from None
    except OSError as error:
        raise ConfigError(f"{file}: it cannot be read: {error.strerror}. Check its permissions.") from None
    return _from_content(content, str(file), environ)


def _from_content(content: dict[str, Any], source: str, environ: Mapping[str, str]) -> Config:
    _known(content, {"registry", "author", "spark", "catalogs", "waivers", "ledger"}, source, "")
    spark = _table(content, "spark", source)
    _known(spark, {"master", "warehouse", "conf"}, source, "spark.")
    conf = {
        key: _scalar(value, source, f"spark.conf.{key}")
        for key, value in _flat(_table(spark, "conf", source, "spark."))
    }
    conf |= _json_map(environ, "DELTAPLANE_SPARK_CONF")
    catalogs = {
        key: _scalar(value, source, f"catalogs.{key}")
        for key, value in _table(content, "catalogs", source).items()
    }
    catalogs |= _json_map(environ, "DELTAPLANE_CATALOGS")
    return Config(
        source=source,
        registry=environ.get("DELTAPLANE_REGISTRY") or _text(content, "registry", source),
        author=environ.get("DELTAPLANE_AUTHOR") or _text(content, "author", source),
        spark=SparkSettings(
            environ.get("DELTAPLANE_SPARK_MASTER") or _text(spark, "master", source, "spark."),
            environ.get("DELTAPLANE_SPARK_WAREHOUSE") or _text(spark, "warehouse", source, "spark."),
            FrozenMap(conf),
        ),
        catalogs=FrozenMap(catalogs),
        waivers=_waivers(content.get("waivers", []), source),
        ledger=_ledger(_table(content, "ledger", source), source, environ),
    )


def _ledger(content: Mapping[str, Any], source: str, environ: Mapping[str, str]) -> LedgerSettings:
    _known(content, {"uri", "alerts"}, source, "ledger.")
    alerts = _table(content, "alerts", source, "ledger.")
    _known(alerts, {*_LIMITS, *_SWITCHES, "webhook", "webhook_env"}, source, "ledger.alerts.")
    limits: dict[str, float | bool | None] = {
        key: _limit(alerts[key], source, key) for key in _LIMITS if key in alerts
    }
    limits |= {key: _switch(alerts[key], source, key) for key in _SWITCHES if key in alerts}
    uri = environ.get("DELTAPLANE_LEDGER") or _text(content, "uri", source, "ledger.")
    return LedgerSettings(uri, AlertSettings(tuple(limits.items()), _webhook(alerts, source, environ)))


def _limit(value: Any, source: str, key: str) -> float | None:
    if value is False:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(
            f"{source}: ledger.alerts.{key} must be a number from 0 on, or false for no such alert, and is "
            f"{value!r}. Correct it."
        )
    return value


def _switch(value: Any, source: str, key: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(
            f"{source}: ledger.alerts.{key} must be true or false, and is {value!r}. Correct it."
        )
    return value


def _webhook(alerts: Mapping[str, Any], source: str, environ: Mapping[str, str]) -> str | None:
    """The address itself is not repeated in an error: it may hold a secret."""
    for key in ("webhook", "webhook_env"):
        if not isinstance(alerts.get(key, ""), str):
            raise ConfigError(f'{source}: ledger.alerts.{key} must be text. Put it in quotes: {key} = "…"')
    if environ.get("DELTAPLANE_ALERT_WEBHOOK"):
        return environ["DELTAPLANE_ALERT_WEBHOOK"]
    name = alerts.get("webhook_env")
    if name and not environ.get(name):
        raise ConfigError(
            f"{source}: ledger.alerts.webhook_env names {name}, and there is no such variable. Set it to the "
            f"address, or remove the key."
        )
    return environ[name] if name else alerts.get("webhook") or None


def _known(content: Mapping[str, Any], known: set[str], source: str, prefix: str) -> None:
    for key in content:
        if key not in known:
            raise ConfigError(
                f"{source}: {prefix}{key} is not a setting. Known here: {', '.join(sorted(known))}. "
                f"Correct or remove it."
            )


def _table(content: Mapping[str, Any], key: str, source: str, prefix: str = "") -> dict[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise ConfigError(
            f"{source}: {prefix}{key} must be a table, and is {value!r}. "
            f"Write it as [{prefix}{key}] with its keys below."
        )
    return value


def _text(content: Mapping[str, Any], key: str, source: str, prefix: str = "") -> str | None:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(
            f'{source}: {prefix}{key} must be text, and is {value!r}. Put it in quotes: {key} = "…"'
        )
    return value


def _scalar(value: Any, source: str, key: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(
        f"{source}: {key} must be text, a number or true or false, and is {value!r}. Correct it."
    )


def _flat(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Spark's keys have dots: unquoted they arrive as nested tables."""
    pairs: list[tuple[str, Any]] = []
    for key, value in content.items():
        if isinstance(value, dict):
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((prefix + key, value))
    return pairs


def _json_map(environ: Mapping[str, str], name: str) -> dict[str, str]:
    text = environ.get(name)
    if not text:
        return {}
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ConfigError(
            f'{name}: it must be a JSON object, such as {{"key": "value"}}. Correct the variable.'
        )
    return {str(key): _scalar(value, name, str(key)) for key, value in content.items()}


def _waivers(entries: Any, source: str) -> tuple[Waiver, ...]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(
            f"{source}: waivers must be tables. Write each as [[waivers]] with code, table and reason."
        )
    return tuple(_waiver(entry, source, f"waivers[{number}]") for number, entry in enumerate(entries, 1))


def _waiver(entry: Mapping[str, Any], source: str, place: str) -> Waiver:
    _known(entry, {"code", "table", "column", "reason"}, source, f"{place}.")
    values = {
        key: _text(entry, key, source, f"{place}.") or "" for key in ("code", "table", "column", "reason")
    }
    for key in ("code", "table", "reason"):
        if not values[key].strip():
            raise ConfigError(f'{source}: {place}.{key} is missing. Add it: {key} = "…"')
    try:
        return Waiver(values["code"], values["table"], values["column"] or None, values["reason"])
    except DeclarationError as error:
        raise ConfigError(f"{source}: {place}: {error}") from None
