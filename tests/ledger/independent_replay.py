"""A second, simple reading of a Delta log: json and pyarrow, nothing of deltaplane.

It stands beside deltalake for what deltalake does not show (deletion vectors, tombstones, domains), and for
protocols that it does not open. It is written for clarity and small tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Key = tuple[str, str]
RawAction = Mapping[str, Any]


@dataclass(frozen=True)
class Replayed:
    """A table at one version. Two of them are equal when the tables are."""

    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    files: dict[Key, dict[str, Any]] = field(default_factory=dict)
    removed: frozenset[Key] = frozenset()
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)

    def after(self, actions: Iterable[RawAction]) -> Replayed:
        """The table after a commit; the last word on a file counts."""
        files, removed = dict(self.files), set(self.removed)
        transactions, domains = dict(self.transactions), dict(self.domains)
        protocol, metadata = self.protocol, self.metadata
        for action in actions:
            ((kind, body),) = ((k, v) for k, v in action.items() if v is not None)
            if kind == "add":
                files[key_of(body)] = file_of(body)
                removed.discard(key_of(body))
            elif kind == "remove":
                files.pop(key_of(body), None)
                removed.add(key_of(body))
            elif kind == "txn":
                transactions[body["appId"]] = body["version"]
            elif kind == "domainMetadata":
                domains.pop(body["domain"], None)
                if not body.get("removed"):
                    domains[body["domain"]] = body["configuration"]
            elif kind == "protocol":
                protocol = protocol_of(body)
            elif kind == "metaData":
                metadata = metadata_of(body)
        return Replayed(protocol, metadata, files, frozenset(removed), transactions, domains)

    def without_tombstones(self) -> Replayed:
        """For readers that do not show them."""
        return replace(self, removed=frozenset())


def key_of(body: Mapping[str, Any]) -> Key:
    """Path and deletion vector, which together name a logical file."""
    vector = body.get("deletionVector")
    if not vector:
        return body["path"], ""
    offset = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return body["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}{offset}"


def file_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What must survive publication, checkpoints and adoption."""
    return {
        "size": body["size"],
        "modificationTime": body["modificationTime"],
        "partitionValues": dict(body.get("partitionValues") or {}),
        "stats": json.loads(body["stats"]) if body.get("stats") else None,
        "baseRowId": body.get("baseRowId"),
        "defaultRowCommitVersion": body.get("defaultRowCommitVersion"),
    }


def protocol_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Versions and features, whose order means nothing."""
    return {
        "reader": body["minReaderVersion"],
        "writer": body["minWriterVersion"],
        "readerFeatures": sorted(body.get("readerFeatures") or ()),
        "writerFeatures": sorted(body.get("writerFeatures") or ()),
    }


def metadata_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The table's definition."""
    return {
        "id": body["id"],
        "description": body.get("description"),
        "schema": json.loads(body["schemaString"]),
        "partitionColumns": list(body.get("partitionColumns") or ()),
        "configuration": dict(body.get("configuration") or {}),
    }


def commit_lines(table: Path, version: int) -> list[dict[str, Any]]:
    """The actions of a published commit."""
    text = (table / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def published_versions(table: Path) -> list[int]:
    """The versions whose commits are in the log."""
    return sorted(
        int(file.stem) for file in (table / "_delta_log").glob("[0-9]*.json") if file.stem.isdigit()
    )


def replay_commits(table: Path, version: int) -> Replayed:
    """The table by its commits alone, from version 0."""
    state = Replayed()
    for number in range(version + 1):
        state = state.after(commit_lines(table, number))
    return state


def replay_from_checkpoint(table: Path, version: int) -> Replayed | None:
    """The table as a reader sees it that begins at the newest checkpoint; None when there is none."""
    log = table / "_delta_log"
    starts = {
        int(file.name[:20]): file
        for file in log.glob("*.checkpoint*.parquet")
        if int(file.name[:20]) <= version
    }
    if not starts:
        return None
    state = Replayed().after(_checkpoint_actions(starts[max(starts)], log))
    for number in range(max(starts) + 1, version + 1):
        state = state.after(commit_lines(table, number))
    return state


def _checkpoint_actions(file: Path, log: Path) -> list[dict[str, Any]]:
    actions = []
    # Opened by itself: given a path, pyarrow would take "day=1" in it for a partition.
    with file.open("rb") as source:
        rows = pq.read_table(source).to_pylist(maps_as_pydicts="strict")
    for row in rows:
        ((kind, body),) = ((k, v) for k, v in row.items() if v is not None)
        if kind == "sidecar":
            actions += _checkpoint_actions(log / "_sidecars" / body["path"], log)
        elif kind != "checkpointMetadata":
            actions.append({kind: body})
    keys = [
        (kind, key_of(body))
        for action in actions
        for kind, body in action.items()
        if kind in ("add", "remove")
    ]
    assert len(keys) == len(set(keys)), f"{file.name} names a file twice"
    return actions
