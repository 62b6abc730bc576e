"""When the commits of a plain `_delta_log` took place.

The time stands in the commit where the table keeps it there. Otherwise it is that of the file, and where two
files contradict their order, the later one counts as written a millisecond after the other, as in Delta.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from deltaplane.errors import VersionNotFound
from deltaplane.ledger.load import FileVanished, load_state
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.prepare import prepare_bytes
from deltaplane.ledger.storage import Storage
from deltaplane.ledger.times import clock_text
from deltaplane.log.in_commit_time import enabled_since
from deltaplane.log.listing import LogListing, reconstructable

__all__ = ["CommitTimes"]


@dataclass
class CommitTimes:
    """The times of one table's commits.

    Attributes:
        storage: The table's files.
        listing: What its log consists of.
    """

    storage: Storage
    listing: LogListing
    _told: dict[int, int | None] = field(default_factory=dict)

    def at(self, version: int) -> int:
        """When a version was committed."""
        if version not in self.listing.commits:
            return self._checkpoint_time(version)
        told = self.told(version)
        return self._files[version] if told is None else told

    def told(self, version: int) -> int | None:
        """The time that a commit carries; None when it carries none."""
        if version not in self._told:
            source = f"{self.storage.root}/{commit_path(version)}"
            try:
                content = self.storage.read(commit_path(version))
            except FileNotFoundError:
                raise FileVanished(source, "the commit was listed and is gone. Repeat.") from None
            self._told[version] = prepare_bytes(content, source).in_commit_timestamp
        return self._told[version]

    def version_at(self, moment: int) -> int:
        """The newest version that was there at a moment.

        Raises:
            VersionNotFound: The table is younger, or its log does not reach back so far.
        """
        versions = self._versions()
        switch = self._switch(versions)
        later = range(max(versions.start, switch), versions.stop)
        found = bisect_right(later, moment, key=self.at)
        if found:
            return later[found - 1]
        earlier = range(versions.start, later.start)
        found = bisect_right(earlier, moment, key=self._files.__getitem__)
        if found:
            return earlier[found - 1]
        earliest = f" The earliest is {clock_text(self.at(versions.start))}." if versions else ""
        raise VersionNotFound(f"{self.storage.root}: there was no version at {clock_text(moment)}.{earliest}")

    def _versions(self) -> range:
        """The versions that can be rebuilt and have a commit."""
        first, newest = reconstructable(self.listing).first_version, self.listing.newest
        return range(first if first in self.listing.commits else first + 1, newest + 1)

    def _switch(self, versions: range) -> int:
        """Since which version commits carry their time; the first one when none does."""
        if not versions or self.told(versions[-1]) is None:
            return versions.start
        metadata = load_state(self.storage, versions[-1], self.listing).metadata
        since = enabled_since(metadata) if metadata else None
        return since[0] if since else versions.start

    @cached_property
    def _files(self) -> dict[int, int]:
        times: dict[int, int] = {}
        last = -1
        for version, file in self.listing.commits.items():
            last = times[version] = max(file.modified_ms, last + 1)
        return times

    def _checkpoint_time(self, version: int) -> int:
        """All that is left of a version whose commit was cleaned up."""
        found = [one for one in self.listing.checkpoints if one.version == version]
        return max((file.modified_ms for one in found for file in one.files), default=0)
