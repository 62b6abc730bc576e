"""The active files of a version: from packs as far as they go, and from the rows of `files` for the rest.

What comes out of packs must agree with the totals of the commit. If it does not, for example because somebody
repaired the table meanwhile, it is thrown away and all rows are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltaplane import telemetry
from deltaplane.ledger import packs as packing
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.packs import Pack, Span, listed_packs, opened, runs, uncovered, within
from deltaplane.ledger.wide import FILES_SCHEMA, files_batch, files_table

__all__ = ["Wanted", "read_files"]

_OPENERS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Wanted:
    """The files of one version.

    Attributes:
        table: The table.
        version: The version.
        num_files: How many there are; None when nobody has counted.
        size_bytes: Their size together.
        partitioned: Whether partition values are wanted.
        vectors: Whether deletion vectors are wanted.
    """

    table: ManagedTable
    version: int
    num_files: int | None
    size_bytes: int | None
    partitioned: bool
    vectors: bool

    @property
    def optional(self) -> str:
        """Columns that are read only where they are wanted."""
        values = "partition_values, " if self.partitioned else ""
        return values + ("coalesce(deletion_vector, '') AS deletion_vector, " if self.vectors else "")

    @property
    def absent(self) -> set[str]:
        """The columns of a snapshot that are not wanted."""
        chosen = {"partition_values": self.partitioned, "deletion_vector": self.vectors}
        return {name for name, wanted in chosen.items() if not wanted}


def read_files(ctx: Context, wanted: Wanted) -> pa.Table:
    """The active files of a version, as people read them."""
    packed = _packed(ctx, wanted)
    if packed is not None:
        return packed
    table_id, version = wanted.table.table_id, wanted.version
    reader = ctx.store.arrow("files_narrow", optional=wanted.optional, table_id=table_id, version=version)
    return files_table(reader)


def _packed(ctx: Context, wanted: Wanted) -> pa.Table | None:
    """The files with the help of packs; None when there are none or they do not give what the commit says."""
    if wanted.num_files is None or wanted.table.next_file_id < packing.STRETCH:
        return None
    with ctx.store.glance() as session:
        packs = listed_packs(session, wanted.table)
    if not packs:
        return None
    try:
        found = _combined(ctx, wanted, packs)
        size = pc.sum(found["size"]).as_py() or 0
        if (found.num_rows, size) == (wanted.num_files, wanted.size_bytes):
            return found
        why = f"they give {found.num_rows} files with {size} bytes"
    except (pa.ArrowException, OSError) as error:
        why = f"{type(error).__name__}: {error}"
    telemetry.LOGGER.warning(
        "%s: the packs do not give version %d, and its rows are read instead: %s",
        wanted.table.label,
        wanted.version,
        why,
    )
    telemetry.count("ledger_pack_mismatches_total", table=wanted.table.label)
    return None


def _combined(ctx: Context, wanted: Wanted, packs: list[Pack]) -> pa.Table:
    """Packs and rows together, in the order of their ids.

    A pack that was dropped since it was listed covers nothing; one whose files all came later covers its ids.
    """
    needed = {pack for pack in packs if pack.first_added <= wanted.version}
    gone = _gone(ctx, wanted, runs(needed))
    with ThreadPoolExecutor(_OPENERS) as pool:
        opening: dict[Pack, Future[pa.RecordBatch]] = {}
        for pack, content in _contents(ctx, wanted):
            if pack in needed:
                ids = within(gone, pack.first_file, pack.beyond_file)
                opening[pack] = pool.submit(opened, pack, content, wanted.version, ids, wanted.absent)
        covering = [pack for pack in packs if pack in opening or pack not in needed]
        parts = {span[0]: _rows(ctx, wanted, span) for span in uncovered(covering)}
        parts |= {pack.first_file: [future.result()] for pack, future in opening.items()}
    batches = [batch for _, part in sorted(parts.items()) for batch in part]
    return pa.Table.from_batches(batches, FILES_SCHEMA)


def _rows(ctx: Context, wanted: Wanted, span: Span) -> list[pa.RecordBatch]:
    reader = ctx.store.arrow(
        "files_between",
        optional=wanted.optional,
        table_id=wanted.table.table_id,
        version=wanted.version,
        first_file=span[0],
        beyond_file=span[1],
    )
    return [files_batch(batch) for batch in reader]


def _contents(ctx: Context, wanted: Wanted) -> Iterator[tuple[Pack, pa.Buffer]]:
    table_id, version = wanted.table.table_id, wanted.version
    for batch in ctx.store.arrow("pack_contents", table_id=table_id, version=version):
        *described, contents = batch.columns
        for row, content in zip(zip(*described, strict=True), contents, strict=True):
            yield Pack(*(value.as_py() for value in row)), content.as_buffer()


def _gone(ctx: Context, wanted: Wanted, spans: Iterable[Span]) -> pa.Array:
    """The sorted ids of the files in some spans that are gone at the version."""
    found = [
        batch["file_id"].cast(pa.int64())
        for first, beyond in spans
        for batch in ctx.store.arrow(
            "gone_files",
            table_id=wanted.table.table_id,
            version=wanted.version,
            first_file=first,
            beyond_file=beyond,
        )
    ]
    return pa.concat_arrays([pa.array([], pa.int64()), *found]).sort()
