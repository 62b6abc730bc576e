"""From MODULE:ATTRIBUTE to a registry."""

from __future__ import annotations

import importlib
import os
import sys
import traceback

from deltaplane.config import Config
from deltaplane.errors import DeltaplaneError, RegistryLoadError
from deltaplane.schema import Registry

__all__ = ["load_registry"]


def load_registry(target: str | None, config: Config) -> Registry:
    """Import the module and return its registry.

    Args:
        target: MODULE:ATTRIBUTE; left out, what the configuration names.
        config: The settings.

    Raises:
        RegistryLoadError: There is no such module or attribute, or it is not a registry.
    """
    target = target or config.registry
    if not target:
        raise RegistryLoadError(
            "No registry was named. Give MODULE:ATTRIBUTE, such as tables:registry, or set registry in "
            "deltaplane.toml "
            "(deltaplane init writes one)."
        )
    module_name, separator, attribute = target.partition(":")
    if not separator or not module_name or not attribute:
        raise RegistryLoadError(f"{target!r} is not MODULE:ATTRIBUTE. Write it like tables:registry.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    module = _import(module_name)
    found = getattr(module, attribute, None)
    if not isinstance(found, Registry):
        what = "does not exist" if found is None else f"is a {type(found).__name__}, not a Registry"
        raise RegistryLoadError(
            f"{target}: {attribute} {what} in {getattr(module, '__file__', module_name)}. "
            f"Define it there: {attribute} = dp.Registry(…)"
        )
    return found


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name.split(".", maxsplit=1)[0] or error.name == name:
            raise RegistryLoadError(
                f"There is no module {name} in {os.getcwd()} or on the Python path. Check the name and "
                f"the directory, "
                "or write an example with: deltaplane init"
            ) from None
        raise RegistryLoadError(_where(name, error)) from None
    except DeltaplaneError as error:
        raise RegistryLoadError(_where(name, error)) from None
    except Exception as error:
        raise RegistryLoadError(_where(name, error)) from None


def _where(name: str, error: BaseException) -> str:
    """Point to the line of the user's own file, not into ours."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {error.msg}. Nothing was changed. Correct the line."
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", here)) and "importlib" not in frame.filename
    ]
    place = f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else f"module {name}"
    kind = "" if isinstance(error, DeltaplaneError) else f"{type(error).__name__}: "
    return f"{place}: {kind}{error} Nothing was changed."
