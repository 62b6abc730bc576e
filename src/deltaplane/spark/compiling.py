"""Compiles the Java classes of the ledger inside the driver, with Janino, which Spark ships.

No JDK is needed, nothing binary is shipped, and the classes always match the running Spark and Delta.
Executors get them as a jar: they load the log store and the file systems by name, and ask nobody.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compile_classes", "compiled", "file_system_class", "java_source", "load_sources"]

_CLASSES = (
    "LedgerLogStore",
    "FileSystems",
    "ViewCache",
    "LedgerCacheManager",
    "CatalogEntries",
    "LedgerNames",
    "NameWatch",
    "StatementGate",
)


def java_source(name: str) -> str:
    """The source of one of our classes."""
    return (files(__package__) / "java" / f"{name}.java").read_text(encoding="utf-8")


def file_system_class(scheme: str) -> str:
    """The name of the class that serves a scheme, without its package."""
    return "LedgerFileSystem_" + "".join(c if c.isalnum() else "_" for c in scheme)


def compile_classes(spark: SparkSession, file_systems: Mapping[str, str]) -> None:
    """Make the classes loadable by name, in the driver and on executors. Those that are loaded stay.

    Args:
        spark: The session.
        file_systems: The file system class that serves each scheme now.
    """
    jvm: Any = spark._jvm
    sources = {name: java_source(name) for name in _CLASSES}
    template = java_source("LedgerFileSystem")
    for scheme, parent in file_systems.items():
        name = file_system_class(scheme)
        sources[name] = template.replace("%(name)s", name).replace("%(parent)s", parent)
    load_sources(spark, {name: text for name, text in sources.items() if not _loadable(jvm, name)})


def load_sources(spark: SparkSession, sources: Mapping[str, str]) -> None:
    """Compile sources, in their order, and make them loadable by name, in the driver and on executors."""
    if not sources:
        return
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    classes: dict[str, bytes] = {}
    parent = loader
    for source in sources.values():
        compiler = compiled(jvm, source, parent)
        parent = compiler.getClassLoader()
        bytecodes = compiler.getBytecodes()
        classes |= {str(key): bytes(bytecodes.get(key)) for key in list(bytecodes.keySet())}
    jar = _jar(classes)
    loader.addURL(jvm.java.io.File(jar).toURI().toURL())
    spark.sparkContext._jsc.sc().addJar(jar)


def compiled(jvm: Any, source: str, parent: Any) -> Any:
    """The compiler, which has compiled a source; classes that it needs are found through the parent."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    # Without these, static methods of interfaces, which the Scala library has many of, cannot be called.
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.cook(source)
    return compiler


def _loadable(jvm: Any, name: str) -> bool:
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(f"deltaplane.{name}"))


def _jar(classes: Mapping[str, bytes]) -> str:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, code in sorted(classes.items()):
            archive.writestr(f"{name.replace('.', '/')}.class", code)
    folder = tempfile.mkdtemp(prefix="deltaplane-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # Spark takes a name once, and there may be more than one set of classes.
    path = os.path.join(folder, f"deltaplane-{hashlib.sha256(content.getvalue()).hexdigest()[:12]}.jar")
    with open(path, "wb") as file:
        file.write(content.getvalue())
    return path
