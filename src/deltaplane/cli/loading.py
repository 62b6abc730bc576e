"""From MODULE:ATTRIBUTE to a registry."""

from __future__ import annotations

import importlib
import os
import re
import sys
import sysconfig
import traceback
from contextlib import redirect_stdout
from types import ModuleType

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
    named_by = "" if target else f" ({config.source} names it)"
    target = target or config.registry
    if not target:
        raise RegistryLoadError(
            "No registry was named. Give MODULE:ATTRIBUTE, such as tables:registry, or set registry in "
            "deltaplane.toml (deltaplane init writes one)."
        )
    module_name, separator, attribute = target.partition(":")
    if not separator or not re.fullmatch(r"\w+(\.\w+)*", module_name) or not attribute.isidentifier():
        raise RegistryLoadError(
            f"{target!r} is not MODULE:ATTRIBUTE{named_by}. "
            f"Write it like {_corrected(module_name, attribute)}."
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    module = _import(module_name, attribute, named_by)
    found = getattr(module, attribute, None)
    if not isinstance(found, Registry):
        raise RegistryLoadError(f"{target}: {_not_a_registry(module, attribute)}{named_by}.")
    return found


def _corrected(module_name: str, attribute: str) -> str:
    """A file is what people think of: turn its path into the module's name."""
    path = module_name.removeprefix("./").removesuffix(".py").replace("/", ".")
    module = path if re.fullmatch(r"\w+(\.\w+)*", path) else "tables"
    return f"{module}:{attribute if attribute.isidentifier() else 'registry'}"


def _not_a_registry(module: ModuleType, attribute: str) -> str:
    file = module.__file__ or module.__name__
    what = (
        f"{attribute} is a {type(getattr(module, attribute)).__name__}, not a Registry, in {file}"
        if hasattr(module, attribute)
        else f"there is no {attribute} in {file}"
    )
    others = sorted(name for name, value in vars(module).items() if isinstance(value, Registry))
    if others:
        return f"{what}. Its registries are: {', '.join(others)}"
    return f"{what}. Define it there with {attribute} = dp.Registry(…)"


def _import(name: str, attribute: str, named_by: str) -> ModuleType:
    try:
        # What the module prints must not mix with a result in JSON.
        with redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name or name.startswith(f"{error.name}."):
            raise RegistryLoadError(_no_module(name, attribute, named_by)) from None
        raise RegistryLoadError(_where(name, error)) from None
    except SystemExit as error:
        raise RegistryLoadError(
            f"{_place(name, error)}: the module ends the process with sys.exit() while it is imported. "
            "Nothing was changed. Put that under: if __name__ == '__main__':"
        ) from None
    except Exception as error:
        raise RegistryLoadError(_where(name, error)) from None


def _no_module(name: str, attribute: str, named_by: str) -> str:
    if name.endswith(".py"):
        return f"{name} is a file, not a module{named_by}. Write it like {_corrected(name, attribute)}."
    return (
        f"There is no module {name} in {os.getcwd()} or on the Python path{named_by}. Check the name and the "
        "directory, or write an example with: deltaplane init"
    )


def _where(name: str, error: BaseException) -> str:
    """Say what is wrong and in which line of the user's own files."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {error.msg}. Nothing was changed. Correct the line."
    text = str(error).rstrip(". ") or "no message"
    if isinstance(error, DeltaplaneError):
        return f"{_place(name, error)}: {text}. Nothing was changed."
    return f"{_place(name, error)}: {type(error).__name__}: {text}. Nothing was changed. Correct the line."


def _place(name: str, error: BaseException) -> str:
    """The last line that is the user's: neither ours, nor Python's, nor an installed package's."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    paths = sysconfig.get_paths()
    installed = tuple(paths[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", ours, *installed))
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else f"module {name}"
