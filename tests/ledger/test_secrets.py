"""No password and no key appears in a repr, an error, a log, a span or the database; and the audit trail."""

from __future__ import annotations

import getpass
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deltaplane import telemetry
from deltaplane.errors import ConfigError, DeltaplaneError, StorageError, TableFrozen
from deltaplane.ledger import Ledger, Retries, connect
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.storage import open_storage
from deltaplane.ledger.stores.base import Store
from ledger.conftest import SCHEMA, add

SECRET = "wJalrXUtnFEMI-hunter2-EXAMPLEKEY"
PASSWORD = "correct-horse-battery"
OPTIONS = {
    "access_key_id": "AKIAIOSFODNN7EXAMPLE",
    "secret_access_key": SECRET,
    "session_token": f"token-{SECRET}",
    "region": "us-east-1",
    "allow_http": "true",
    "virtual_hosted_style_request": "false",
}


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    """An object store on loopback, with a bucket."""
    import urllib.request

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    request = urllib.request.Request(f"{endpoint}/lake", method="PUT")
    urllib.request.urlopen(request).close()
    yield OPTIONS | {"endpoint": endpoint}
    server.stop()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry._trace, "get_tracer", provider.get_tracer)
    return exporter


@pytest.fixture
def steps() -> Iterator[list[str]]:
    heard: list[str] = []
    stop = telemetry.listen(lambda name, attributes: heard.append(f"{name} {attributes!r}"))
    yield heard
    stop()


def content_of(store: Store) -> str:
    """Everything that the database holds, as text."""
    with store.reading() as session:
        raw: Any = getattr(session, "_connection", None) or session._cursor  # type: ignore[attr-defined]
        listing = {
            "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
            "duckdb": "SELECT table_name FROM duckdb_tables()",
            "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
        }[store.engine]
        names = [row[0] for row in raw.execute(listing).fetchall()]
        assert "audit" in names
        return "\n".join(repr(raw.execute(f"SELECT * FROM {name}").fetchall()) for name in names)


def shown_by(error: BaseException) -> str:
    """An error with all its causes, as a traceback would print them."""
    text = ""
    cause: BaseException | None = error
    while cause is not None:
        text += f"{cause}\n{cause!r}\n"
        cause = cause.__cause__ or cause.__context__
    return text


def test_nothing_shows_a_secret_when_all_goes_well(
    uri: str,
    bucket: dict[str, str],
    spans: InMemorySpanExporter,
    steps: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    place = f"s3://lake/{uri.encode().hex()[-24:]}"
    with caplog.at_level(logging.DEBUG), connect(uri, storage_options=bucket, author="tester") as ledger:
        ledger.create(place, SCHEMA, properties={"delta.checkpointInterval": "1"})
        with ledger.transaction(message="load") as tx:
            tx.commit(place, [add(1)])
        assert ledger.snapshot(place).files().num_rows == 1
        ledger.reconcile()
        ctx = ledger._ctx
        shown = [
            ledger,
            ctx,
            ctx.store,
            ctx.storage(place),
            tx,
            tx.result,
            ledger.snapshot(place),
            ledger.tables(),
        ]
        texts = [repr(value) for value in shown] + [str(value) for value in shown]
        texts += [content_of(ctx.store), caplog.text, *steps]
    finished = spans.get_finished_spans()
    assert {"deltaplane.ledger.commit", "deltaplane.ledger.publish", "deltaplane.ledger.checkpoint"} <= {
        span.name for span in finished
    }
    texts += [span.to_json() for span in finished]
    assert steps
    for secret in (SECRET, PASSWORD):
        assert [text for text in texts if secret in text] == []


def test_nothing_shows_a_secret_when_the_store_cannot_be_reached(
    uri: str,
    spans: InMemorySpanExporter,
    caplog: pytest.LogCaptureFixture,
    bucket: dict[str, str],
) -> None:
    """A publication that fails is noted in the database, and its error must not carry the key there."""
    place = f"s3://lake/{uri.encode().hex()[-24:]}-lost"
    with connect(uri, storage_options=bucket, retries=Retries(1)) as ledger:
        ledger.create(place, SCHEMA)
    nowhere = bucket | {"endpoint": "http://127.0.0.1:9", "timeout": "1s"}
    with caplog.at_level(logging.DEBUG), connect(uri, storage_options=nowhere, retries=Retries(1)) as ledger:
        with pytest.raises(DeltaplaneError) as refused:
            ledger.refresh(place)
        _ratify_only(ledger, place)
        with pytest.raises(StorageError):
            ledger.publish(place)
        content = content_of(ledger._ctx.store)
        noted = ledger.status().tables[0].last_error
        assert noted
    texts = [shown_by(refused.value), content, caplog.text]
    texts += [span.to_json() for span in spans.get_finished_spans()]
    assert [text for text in texts if SECRET in text] == []


def _ratify_only(ledger: Ledger, place: str) -> None:
    """Leave a version that waits for publication."""
    ctx = ledger._ctx
    table = ctx.table(place)
    with ctx.store.writing() as session:
        session.run("set_published", table_id=table.table_id, version=-1)
        session.run("unpublish", table_id=table.table_id, version=0)


def test_options_of_a_store_are_not_shown_by_its_errors() -> None:
    with pytest.raises(StorageError) as refused:
        open_storage("s3://lake/t", OPTIONS | {"no_such_option": SECRET})
    assert SECRET not in shown_by(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        f"deltasql://postgres/user:{PASSWORD}@localhost/db",
        f"deltasql://postgres/user@localhost/db?password={PASSWORD}",
    ],
)
def test_a_password_in_the_address_is_refused_without_a_trace(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError) as refused:
        connect(address)
    assert PASSWORD not in shown_by(refused.value) + caplog.text


def test_a_root_with_a_password_is_refused_without_repeating_it(ledger: Ledger) -> None:
    with pytest.raises(StorageError) as refused:
        ledger.create(f"s3://user:{SECRET}@lake/t", SCHEMA)
    assert SECRET not in shown_by(refused.value)


# --- the audit trail: who, from where, what, why

HERE = f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()}"


def trail(ledger: Ledger) -> list[tuple[str, str | None, str | None]]:
    entries = ledger.audit_trail()
    assert {entry.origin for entry in entries} == {HERE}
    assert [entry.happened_at for entry in entries] == sorted((e.happened_at for e in entries), reverse=True)
    return [(entry.action, entry.author, entry.detail) for entry in entries]


def test_creation_is_audited_with_author_and_reason(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "a", SCHEMA, author="ann", message="for the orders")
    ledger.create(tmp_path / "b", SCHEMA)
    assert trail(ledger) == [("create", "tester", None), ("create", "ann", "for the orders")]
    assert [entry.location for entry in ledger.audit_trail(limit=1)] == [str(tmp_path / "b")]


def test_foreign_commits_are_audited_with_their_writer(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", SCHEMA)
    outside = '{"commitInfo":{"operation":"WRITE","engineInfo":"Apache-Spark/4.2"}}\n'
    (tmp_path / "t" / commit_path(1)).write_text(outside, encoding="utf-8")
    assert ledger.refresh(tmp_path / "t") == 1
    assert trail(ledger)[0] == ("import", "Apache-Spark/4.2", "foreign commit, version 1")


def test_freezing_and_repair_are_audited_with_the_reason(ledger: Ledger, tmp_path: Path) -> None:
    place = tmp_path / "t"
    ledger.create(place, SCHEMA)
    _ratify_only(ledger, str(place))
    (place / commit_path(0)).write_text("{}\n", encoding="utf-8")
    with pytest.raises(TableFrozen):
        ledger.publish(place)
    ledger.repair(place, "ledger", dry_run=False, author="ann")
    (repair, _, _), (freeze, author, detail), _ = trail(ledger)
    assert (repair, freeze, author) == ("repair, the ledger was kept", "freeze", "tester")
    assert "version 0" in (detail or "")
    assert ledger.audit_trail()[0].author == "ann"


def test_adoption_and_release_are_audited(ledger: Ledger, tmp_path: Path) -> None:
    place = tmp_path / "t"
    ledger.create(place, SCHEMA)
    ledger.release(place, author="ann")
    ledger.adopt(place, author="bob")
    assert trail(ledger)[:2] == [("adopt", "bob", "up to version 0"), ("release", "ann", "at version 0")]
    assert {entry.location for entry in ledger.audit_trail()} == {str(place)}
