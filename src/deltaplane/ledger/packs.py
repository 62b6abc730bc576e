"""Packs: long stretches of a table's files in a second form that is read a hundred thousand rows at a time.

A pack holds what never changes in the rows of `files` with ids from `first_file` up to, not including,
`beyond_file`: compressed Arrow with the columns of a snapshot, the file's id and the version that added it.
Which of them are gone at a version stays in `files`. So a version is read as: its packs, without the files
that came later or are gone, and the rows of `files` that no pack covers. The commit's own totals say whether
that is right; if not, everything is read from the rows. Packs can be thrown away and made again at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltaplane import telemetry
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.stores.base import Session
from deltaplane.ledger.wide import FILES_SCHEMA, completed_batch, files_batch

__all__ = [
    "FOREVER",
    "STRETCH",
    "Pack",
    "Packing",
    "Span",
    "disjoint",
    "encoded",
    "listed_packs",
    "opened",
    "pack_files",
    "pack_in_passing",
    "plan_packing",
    "runs",
    "uncovered",
    "within",
]

STRETCH = 50_000
"""How many file ids belong together. Stretches begin at multiples of it, so that all packers agree."""
_PIECE = 5_000
"""How many rows are read at a time while packing."""
_MOST_BYTES = 64 * 1024 * 1024
"""A pack ends with the piece in which it passes this size: rows with long statistics make narrower packs."""
FOREVER = 2**63 - 1
"""Behind the last file id and the last version."""
_SCHEMA = pa.schema([*FILES_SCHEMA, ("file_id", pa.int64()), ("added_version", pa.int64())])
_CODEC = pa.Codec("zstd", compression_level=1)

Span = tuple[int, int]
"""File ids from the first up to, not including, the second."""


@dataclass(frozen=True)
class Pack:
    """What a pack covers.

    Attributes:
        first_file: The first file id.
        beyond_file: The id behind the last one.
        first_added: The oldest version that added one of the files.
        last_added: The newest.
        num_rows: How many files there are, gone ones included.
    """

    first_file: int
    beyond_file: int
    first_added: int
    last_added: int
    num_rows: int


@dataclass(frozen=True)
class Packing:
    """What there is to do.

    Attributes:
        drop: Packs of which most files are gone: sorting them out costs more than reading the rest as rows.
        stretches: Complete stretches to pack, or what is left of them.
    """

    drop: tuple[Pack, ...]
    stretches: tuple[Span, ...]


# Deciding.


def disjoint(packs: Iterable[Pack]) -> list[Pack]:
    """Packs in the order of their ids, without those that overlap an earlier one."""
    chosen: list[Pack] = []
    for pack in sorted(packs, key=lambda pack: pack.first_file):
        if not chosen or pack.first_file >= chosen[-1].beyond_file:
            chosen.append(pack)
    return chosen


def uncovered(packs: Iterable[Pack]) -> list[Span]:
    """The ids that no pack covers."""
    gaps: list[Span] = []
    reached = 0
    for pack in disjoint(packs):
        if pack.first_file > reached:
            gaps.append((reached, pack.first_file))
        reached = pack.beyond_file
    return [*gaps, (reached, FOREVER)]


def runs(packs: Iterable[Pack]) -> list[Span]:
    """The ids that packs cover, neighbours together."""
    found: list[Span] = []
    for pack in disjoint(packs):
        if found and found[-1][1] == pack.first_file:
            found[-1] = (found[-1][0], pack.beyond_file)
        else:
            found.append((pack.first_file, pack.beyond_file))
    return found


def within(ids: pa.Array, first: int, beyond: int) -> pa.Array:
    """The part of sorted ids that lies in a span."""

    def place(value: int) -> int:
        return bisect_left(range(len(ids)), value, key=lambda index: ids[index].as_py())

    start = place(first)
    return ids.slice(start, place(beyond) - start)


def plan_packing(
    packs: Iterable[Pack], gone: Mapping[int, int], next_file_id: int, stretch: int, piece: int
) -> Packing:
    """Which packs go and which stretches become packs.

    Args:
        packs: Those there are.
        gone: How many files went, by id divided by `piece`.
        next_file_id: Where the ids end: a stretch is packed when it is complete.
        stretch: The width of a stretch.
        piece: What `gone` counts by.
    """

    def sparse(first: int, beyond: int) -> bool:
        pieces = range(first // piece, (beyond - 1) // piece + 1)
        return 2 * sum(gone.get(number, 0) for number in pieces) > beyond - first

    present = disjoint(packs)
    drop = tuple(pack for pack in present if sparse(pack.first_file, pack.beyond_file))
    gaps = uncovered(present)
    whole = [(first, first + stretch) for first in range(0, next_file_id - stretch + 1, stretch)]
    # The rest of a stretch that a packer left half done is packed as well.
    parts = [(max(span[0], gap[0]), min(span[1], gap[1])) for span in whole for gap in gaps]
    chosen = [(first, beyond) for first, beyond in parts if first < beyond and not sparse(first, beyond)]
    return Packing(drop, tuple(chosen))


# The content of a pack.


def encoded(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches as the content of a pack."""
    table = pa.Table.from_batches(batches, _SCHEMA).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression=_CODEC)) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def opened(pack: Pack, content: pa.Buffer, version: int, gone: pa.Array, absent: set[str]) -> pa.RecordBatch:
    """The files of a pack that are active at a version.

    Args:
        pack: What it should hold.
        content: Its bytes.
        version: The version.
        gone: The ids of its files that went up to then.
        absent: Columns that are left empty.

    Raises:
        pa.ArrowException: It holds something else.
        OSError: It is damaged.
    """
    ids, added = len(gone) > 0, pack.last_added > version
    unread = absent | ({"file_id"} if not ids else set()) | ({"added_version"} if not added else set())
    fields = [number for number, name in enumerate(_SCHEMA.names) if name not in unread]
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
    # Arrow's own pool may ask for huge pages. They are a little faster when the system has them at hand, and
    # several times slower when it must make them first.
    pool = pa.system_memory_pool()
    with pa.ipc.open_stream(content, options=options, memory_pool=pool) as reader:
        if reader.schema != pa.schema([_SCHEMA.field(number) for number in fields]):
            raise pa.ArrowInvalid("the columns of a pack are not those of this client")
        batches = list(reader)
    if [batch.num_rows for batch in batches] != [pack.num_rows]:
        raise pa.ArrowInvalid(f"a pack does not hold its {pack.num_rows} files")
    batch = batches[0]
    if added:
        batch = batch.filter(pc.less_equal(batch["added_version"], version))
    if ids:
        batch = batch.filter(pc.invert(pc.is_in(batch["file_id"], value_set=gone)))
    return completed_batch(batch)


# Writing.


def listed_packs(session: Session, table: ManagedTable) -> list[Pack]:
    """The packs that a table has."""
    return disjoint(Pack(*row) for row in session.rows("pack_ranges", table_id=table.table_id))


def pack_in_passing(ctx: Context, table: ManagedTable) -> None:
    """Pack what can be packed. It only makes reading faster, so a failure is noted and disturbs nobody."""
    try:
        pack_files(ctx, table)
    except Exception as error:
        # Whatever a driver raises, the work before is done.
        telemetry.LOGGER.warning("%s: its files could not be packed: %s", table.label, error)


def pack_files(ctx: Context, table: ManagedTable) -> int:
    """Pack every complete stretch that has no pack, and drop the packs of which most files are gone.

    Each pack is a database transaction of its own. Several may do it at once.

    Returns:
        How many packs were written.
    """
    if table.next_file_id < STRETCH:
        return 0
    piece = min(_PIECE, STRETCH)
    with ctx.store.reading() as session:
        packs = listed_packs(session, table)
        counts = session.rows("gone_counts", table_id=table.table_id, width=piece)
    plan = plan_packing(packs, {row[0]: row[1] for row in counts}, table.next_file_id, STRETCH, piece)
    if plan.drop:
        with ctx.store.relaxed() as session:
            for pack in plan.drop:
                session.run("delete_pack", table_id=table.table_id, first_file=pack.first_file)
        telemetry.step("pack.dropped", table=table.label, packs=len(plan.drop))
    return sum(_pack_stretch(ctx, table, span, piece) for span in plan.stretches)


def _pack_stretch(ctx: Context, table: ManagedTable, span: Span, piece: int) -> int:
    first, last = span
    batches: list[pa.RecordBatch] = []
    written = 0
    for start in range(first, last, piece):
        beyond = min(start + piece, last)
        batches += _piece(ctx, table, start, beyond)
        if beyond == last or sum(batch.nbytes for batch in batches) >= _MOST_BYTES:
            written += _written(ctx, table, (first, beyond), batches)
            first, batches = beyond, []
    return written


def _piece(ctx: Context, table: ManagedTable, first: int, beyond: int) -> Iterator[pa.RecordBatch]:
    reader = ctx.store.arrow("pack_rows", table_id=table.table_id, first_file=first, beyond_file=beyond)
    for batch in reader:
        own = [batch[name].cast(pa.int64()) for name in ("file_id", "added_version")]
        yield pa.RecordBatch.from_arrays([*files_batch(batch).columns, *own], schema=_SCHEMA)


def _written(ctx: Context, table: ManagedTable, span: Span, batches: list[pa.RecordBatch]) -> bool:
    """Write one pack; False when its rows are not what they were, or somebody else was faster."""
    packed = pa.Table.from_batches(batches, _SCHEMA)
    came = pc.min_max(packed["added_version"]).as_py()
    pack = Pack(*span, _or_never(came["min"]), _or_never(came["max"]), packed.num_rows)
    content = encoded(batches)
    totals = (packed.num_rows, pc.sum(packed["size"]).as_py() or 0)
    with ctx.store.relaxed() as session:
        # A repair takes rows out of `files` under the same lock: none of them may come back in a pack.
        held = session.rows("lock_tables", keys=session.keys([table.table_id]))
        place = {"table_id": table.table_id, "first_file": span[0], "beyond_file": span[1]}
        row = session.row("stretch_totals", **place)
        if not held or row is None or (row[0], int(row[1])) != totals:
            return False
        new = session.run(
            "insert_pack",
            **place,
            first_added=pack.first_added,
            last_added=pack.last_added,
            num_rows=pack.num_rows,
            content=content,
        )
    telemetry.step("pack.written", table=table.label, first_file=span[0], files=pack.num_rows)
    return new == 1


def _or_never(version: int | None) -> int:
    """A pack without files holds nothing at any version."""
    return FOREVER if version is None else version
