"""Whether the Java that Spark would start with is there and of a version that Spark accepts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deltaplane.errors import SparkStartError

__all__ = ["find_java", "major_version", "require_java"]

# Spark 4.2 runs on 17, 21 and 25, the long-term releases; those between them have what it needs as well.
OLDEST, NEWEST = 17, 25
REMEDY = "Install Java 17, 21 or 25 (a JRE is enough) and set JAVA_HOME to it, or put `java` on the PATH."


def require_java(environ: Mapping[str, str]) -> None:
    """Raises SparkStartError unless Spark would find a Java that it can run on."""
    java = find_java(environ)
    answer = _ask_version(java)
    version = major_version(answer)
    if version is None:
        raise SparkStartError(
            f"{java} does not say which Java it is ({answer.strip()[:200] or 'no output'}). "
            f"Nothing was changed. {REMEDY}"
        )
    if not OLDEST <= version <= NEWEST:
        raise SparkStartError(
            f"{java} is Java {version}, and Spark 4.2 runs on Java {OLDEST} to {NEWEST}. "
            f"Nothing was changed. {REMEDY}"
        )


def find_java(environ: Mapping[str, str]) -> str:
    """Returns the `java` that Spark's own launcher would pick: JAVA_HOME first, then the PATH."""
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise SparkStartError(
                f"JAVA_HOME is {home}, and there is no {java}. Nothing was changed. {REMEDY}"
            )
        return str(java)
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    if found is None:
        raise SparkStartError(
            "Spark needs Java, and none was found (JAVA_HOME is not set, no `java` on the PATH). "
            f"Nothing was changed. {REMEDY}"
        )
    return found


def major_version(answer: str) -> int | None:
    """Reads the major version from what `java -version` prints, e.g. 17 from 17.0.15 and 8 from 1.8.0_402."""
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match.group(1)) if match else None


def _ask_version(java: str) -> str:
    try:
        # The same program that Spark would run, found in the same way.
        command = [java, "-version"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkStartError(f"{java} could not be run ({error}). Nothing was changed. {REMEDY}") from None
    return result.stderr + result.stdout
