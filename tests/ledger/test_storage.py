"""The files of a table: one suite for a local disk, S3 (a server on loopback) and memory; then the faults."""

from __future__ import annotations

import errno
import glob
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import GenericError

from deltaplane.errors import StorageError, UnsafePath
from deltaplane.ledger import storage_local, storage_object
from deltaplane.ledger.storage import Storage, canonical_root, open_storage

COMMIT = "_delta_log/00000000000000000000.json"
SECRET = "verysecretvalue"
ODD_NAMES = ["a b/c d.json", "p=%20/100%.json", "größe/日本 語.json", "x#y?z/[1]*.json", "plain"]


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "endpoint": f"http://{host}:{port}",
        "region": "us-east-1",
        "access_key_id": "test",
        "secret_access_key": SECRET,
        "allow_http": "true",
    }
    make_bucket(options)
    yield options
    server.stop()


def make_bucket(options: dict[str, str]) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key=SECRET,
    )
    client.create_bucket(Bucket="lake")


@pytest.fixture
def s3(s3_options: dict[str, str]) -> Storage:
    return open_storage(f"s3://lake/{uuid.uuid4().hex}/my table", s3_options)


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "my table")


@pytest.fixture(params=["local", "s3", "memory"])
def storage(request: pytest.FixtureRequest) -> Storage:
    if request.param == "memory":
        return open_storage(f"memory://{uuid.uuid4().hex}")
    found: Storage = request.getfixturevalue(request.param)
    return found


def names(storage: Storage, folder: str, start_after: str | None = None) -> list[str]:
    return [file.name for file in storage.list(folder, start_after)]


# What every storage does.


def test_first_writer_wins_and_the_second_changes_nothing(storage: Storage) -> None:
    assert storage.put_if_absent(COMMIT, b"first") is True
    assert storage.put_if_absent(COMMIT, b"second") is False
    assert storage.read(COMMIT) == b"first"


@pytest.mark.parametrize("same", [True, False])
def test_of_sixteen_writers_at_once_exactly_one_wins(storage: Storage, same: bool) -> None:
    barrier = threading.Barrier(16)

    def write(number: int) -> bool:
        barrier.wait()
        return storage.put_if_absent(COMMIT, b"0" if same else b"%d" % number)

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(write, range(16)))
    assert sorted(results) == [False] * 15 + [True]
    assert storage.read(COMMIT) == (b"0" if same else b"%d" % results.index(True))
    assert names(storage, "_delta_log") == ["00000000000000000000.json"]


def test_bytes_that_were_brought_close_ahead_get_their_name_once(storage: Storage) -> None:
    storage.put("_delta_log/other", b"")
    data = b"x" * 100_000
    with storage.ahead(COMMIT, data):
        assert names(storage, "_delta_log") == ["other"]
        assert storage.put_if_absent(COMMIT, data) is True
        assert storage.put_if_absent(COMMIT, data) is False
    assert storage.read(COMMIT) == data
    assert names(storage, "_delta_log") == ["00000000000000000000.json", "other"]


def test_bytes_that_were_brought_close_ahead_are_not_taken_for_others(storage: Storage) -> None:
    storage.put("_delta_log/other", b"")
    with storage.ahead(COMMIT, b"mine"):
        assert storage.put_if_absent(COMMIT, b"theirs") is True
        assert storage.put_if_absent(COMMIT, b"mine") is False
    assert storage.read(COMMIT) == b"theirs"


def test_put_replaces(storage: Storage) -> None:
    storage.put("a/b", b"old")
    storage.put("a/b", b"new")
    assert storage.read("a/b") == b"new"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_kept_as_they_are(storage: Storage, name: str) -> None:
    assert storage.put_if_absent(name, b"x")
    storage.put(name, b"y")
    folder, _, last = name.rpartition("/")
    with storage.open_input(name) as file:
        assert (file.read(), storage.read(name), storage.exists(name)) == (b"y", b"y", True)
    assert names(storage, folder) == [last]
    storage.delete(name)
    assert (storage.exists(name), names(storage, folder)) == (False, [])


def test_listing_is_sorted_of_one_folder_and_tells_size_and_time(storage: Storage) -> None:
    before = time.time() * 1000
    for name in ["log/2", "log/10", "log/1", "log/sub/0", "logs", "log/_last", "other/3"]:
        storage.put(name, name.encode())
    files = list(storage.list("log"))
    assert [(file.name, file.size) for file in files] == [("1", 5), ("10", 6), ("2", 5), ("_last", 9)]
    assert all(abs(file.modified_ms - before) < 60_000 for file in files)
    assert names(storage, "log", "10") == ["2", "_last"]
    assert names(storage, "log", "1") == ["10", "2", "_last"]
    assert names(storage, "log", "11") == ["2", "_last"]
    assert names(storage, "") == ["logs"]
    assert names(storage, "nowhere") == []
    assert names(storage, "nowhere", "a") == []


def test_long_listing_is_whole(storage: Storage) -> None:
    for number in range(1100):
        storage.put(f"log/{number:04d}", b"")
    assert names(storage, "log") == [f"{number:04d}" for number in range(1100)]
    assert names(storage, "log", "0049") == [f"{number:04d}" for number in range(50, 1100)]


def test_missing_files_are_missing(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("a/b")
    with pytest.raises(FileNotFoundError):
        storage.open_input("a/b")
    assert storage.exists("a/b") is False
    storage.delete("a/b")


def test_folder_is_no_file(storage: Storage) -> None:
    storage.put("a/b", b"")
    assert storage.exists("a") is False


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a\0b"])
def test_path_outside_of_the_root_is_refused(storage: Storage, path: str) -> None:
    for act in (storage.read, storage.exists, storage.delete, storage.open_input):
        with pytest.raises(UnsafePath):
            act(path)
    with pytest.raises(UnsafePath):
        storage.put_if_absent(path, b"")


def test_sink_appears_on_a_clean_exit(storage: Storage) -> None:
    with storage.open_sink("a/b") as sink:
        sink.write(b"one ")
        assert storage.exists("a/b") is False
        sink.write(b"two")
    assert storage.read("a/b") == b"one two"


def test_sink_leaves_the_older_file_on_an_exception(storage: Storage) -> None:
    storage.put("a/b", b"old")

    def fail() -> None:
        with storage.open_sink("a/b") as sink:
            sink.write(b"half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert (storage.read("a/b"), names(storage, "a")) == (b"old", ["b"])
    assert storage.sweep_temporaries("a", 0) == ()


def test_parquet_goes_out_and_in(storage: Storage) -> None:
    table = pa.table({"x": range(300_000), "y": [str(number) for number in range(300_000)]})
    with storage.open_sink("t.parquet") as sink:
        pq.write_table(table, sink, row_group_size=50_000)
    with storage.open_input("t.parquet") as file:
        assert pq.ParquetFile(file).read() == table
    with storage.open_input("t.parquet") as file:
        assert pq.ParquetFile(file).read(["x"]) == table.select(["x"])


def test_large_content_survives(storage: Storage) -> None:
    data = os.urandom(1024) * 12 * 1024
    assert storage.put_if_absent("a", data)
    storage.put("b", data)
    with storage.open_sink("c") as sink:
        sink.write(data)
    assert [storage.read(name) == data for name in "abc"] == [True] * 3


def test_repr_shows_the_root_only(storage: Storage) -> None:
    assert repr(storage) == f"{type(storage).__name__}({storage.root!r})"
    assert SECRET not in repr(vars(storage))


# Roots.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/lake//t/", "/lake/t"),
        ("/lake/x/../t", "/lake/t"),
        ("file:/lake/t", "/lake/t"),
        ("file:///lake/my%20t/", "/lake/my t"),
        ("file://localhost/lake/t", "/lake/t"),
        ("/lake/my%20t", "/lake/my%20t"),
        ("s3://b/p//t/", "s3://b/p/t"),
        ("s3a://b/p", "s3://b/p"),
        ("S3://b", "s3://b"),
        ("gcs://b/p", "gs://b/p"),
        ("abfs://c@a.dfs.core.windows.net/p/", "abfss://c@a.dfs.core.windows.net/p"),
        ("az://c/p", "az://c/p"),
    ],
)
def test_root_has_one_spelling(given: str, expected: str) -> None:
    assert canonical_root(given) == expected
    assert canonical_root(expected) == expected


def test_relative_root_and_link_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert canonical_root("t") == str(tmp_path / "t")
    assert canonical_root(tmp_path / "link" / "t") == str(tmp_path / "real" / "t")


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ("ftp://h/x", "ftp:// is not a storage"),
        (f"s3://key:{SECRET}@b/x", "must not carry a user or a password"),
        ("s3:///x", "names no bucket"),
        ("s3://b/../x", "'..'"),
        ("file://host/x", "names the host"),
        ("", "is empty"),
    ],
)
def test_impossible_root_is_refused(root: str, message: str) -> None:
    with pytest.raises(StorageError, match=message) as caught:
        canonical_root(root)
    assert SECRET not in str(caught.value)


# Faults of a local disk.


def test_name_appears_after_its_content_is_on_the_disk_and_the_folder_follows(
    local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("_delta_log/x", b"")
    steps: list[str] = []
    kinds = {True: "folder", False: "file"}

    def spy(module: Any, name: str, describe: Callable[..., str]) -> None:
        real = getattr(module, name)

        def called(*args: Any) -> Any:
            steps.append(describe(*args))
            return real(*args)

        monkeypatch.setattr(module, name, called)

    spy(os, "write", lambda *_: "write")
    spy(os, "fsync", lambda fd: f"sync {kinds[os.path.isdir(f'/proc/self/fd/{fd}')]}")
    spy(os, "link", lambda *_: "link")
    spy(os, "replace", lambda *_: "replace")
    local.put_if_absent(COMMIT, b"x")
    assert steps == ["write", "sync file", "link", "sync folder"]
    steps.clear()
    local.put_if_absent(COMMIT, b"x")
    assert steps == ["sync folder"]
    steps.clear()
    local.put(COMMIT, b"y")
    assert steps == ["write", "sync file", "replace", "sync folder"]
    steps.clear()
    with local.open_sink(COMMIT) as sink:
        sink.write(b"z")
    assert steps == ["sync file", "replace", "sync folder"]


def test_new_folders_are_forced_to_the_disk(local: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = storage_local._sync_folder
    monkeypatch.setattr(storage_local, "_sync_folder", lambda folder: (synced.append(folder), real(folder)))
    local.put("a/b/c", b"")
    root = local.root
    assert synced == [os.path.dirname(root), root, f"{root}/a", f"{root}/a/b"]


def writers(storage: Storage) -> dict[str, Callable[[], Any]]:
    def sink() -> None:
        with storage.open_sink(COMMIT) as file:
            file.write(b"new")

    return {
        "put_if_absent": lambda: storage.put_if_absent(COMMIT, b"new"),
        "put": lambda: storage.put(COMMIT, b"new"),
        "open_sink": sink,
    }


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize(
    ("writer", "call"),
    [
        *((writer, call) for writer in ("put_if_absent", "put") for call in ("write", "fsync", "open")),
        # A file object does not write through os.write; the disk that is really full covers it.
        ("open_sink", "fsync"),
        ("open_sink", "open"),
    ],
)
def test_failing_disk_is_an_error_and_nothing_is_written(
    local: Storage, monkeypatch: pytest.MonkeyPatch, writer: str, call: str, code: int
) -> None:
    local.put("_delta_log/other", b"")

    def fail(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StorageError) as caught:
            writers(local)[writer]()
    message = str(caught.value)
    assert all(
        part in message for part in (f"{local.root}/{COMMIT}", os.strerror(code), "Nothing was written.")
    )
    assert os.listdir(f"{local.root}/_delta_log") == ["other"]


def test_what_was_brought_close_ahead_in_vain_leaves_nothing(local: Storage) -> None:
    local.put("_delta_log/other", b"")
    with local.ahead(COMMIT, b"x"):
        while not glob.glob(f"{local.root}/_delta_log/.*.tmp"):
            time.sleep(0.001)
    assert os.listdir(f"{local.root}/_delta_log") == ["other"]


def test_nothing_is_brought_close_to_a_folder_that_is_not_there(local: Storage) -> None:
    with local.ahead(COMMIT, b"x"):
        pass
    assert not os.path.exists(local.root)


@pytest.mark.parametrize("call", ["write", "fsync", "open"])
def test_disk_that_fails_ahead_is_tried_again_by_whoever_writes(
    local: Storage, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    local.put("_delta_log/other", b"")
    failed = threading.Event()

    def fail(*_: Any) -> int:
        failed.set()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with local.ahead(COMMIT, data := b"x"):
            assert failed.wait(10)
            with pytest.raises(StorageError, match=r"No space left on device\. Nothing was written"):
                local.put_if_absent(COMMIT, data)
    assert os.listdir(f"{local.root}/_delta_log") == ["other"]
    with local.ahead(COMMIT, data):
        assert local.put_if_absent(COMMIT, data) is True


def test_folder_that_cannot_be_forced_is_told_apart_from_nothing_written(
    local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise OSError(errno.EIO, "x")

    local.put("_delta_log/other", b"")
    monkeypatch.setattr(storage_local, "_sync_folder", fail)
    with pytest.raises(StorageError, match="The file is there, but may be lost in a power failure"):
        local.put_if_absent(COMMIT, b"x")
    assert local.read(COMMIT) == b"x"


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_without_hard_links_files_are_created_in_place(
    local: Storage, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(code, "no hard links here")

    monkeypatch.setattr(os, "link", fail)
    assert [local.put_if_absent(COMMIT, data) for data in (b"first", b"second")] == [True, False]
    assert (local.read(COMMIT), os.listdir(f"{local.root}/_delta_log")) == (b"first", [COMMIT[11:]])


def test_without_hard_links_a_full_disk_leaves_no_partial_file(
    local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: Any) -> None:
        monkeypatch.setattr(os, "write", full)
        raise OSError(errno.EPERM, "no hard links here")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(StorageError, match=r"No space left.*Nothing was written"):
        local.put_if_absent(COMMIT, b"x")
    assert os.listdir(f"{local.root}/_delta_log") == []


def run(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


ATTEMPTS = """
    import sys
    from deltaplane.errors import StorageError
    from deltaplane.ledger.storage import open_storage
    storage = open_storage(sys.argv[1])
    data = b"x" * int(sys.argv[2])
    def sink():
        with storage.open_sink("_delta_log/new") as file:
            file.write(data)
    path = "_delta_log/new"
    for act in (lambda: storage.put_if_absent(path, data), lambda: storage.put(path, data), sink):
        try:
            act()
        except StorageError as error:
            print(error)
        else:
            print("written")
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, where mounting is allowed."""
    target = tmp_path / "small"
    target.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(target)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system is not allowed here")
    yield target
    subprocess.run(["umount", str(target)], check=True)


def test_disk_that_is_really_full(small_disk: Path) -> None:
    (small_disk / "_delta_log").mkdir()
    done = run(ATTEMPTS, str(small_disk), "1000000")
    assert (done.returncode, done.stderr) == (0, "")
    outcome = done.stdout.splitlines()
    assert [("No space left on device. Nothing was written." in line) for line in outcome] == [True] * 3
    assert os.listdir(small_disk / "_delta_log") == []


def test_file_that_grows_over_the_limit_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
    done = run(limit + textwrap.dedent(ATTEMPTS), str(tmp_path), "1000000")
    outcome = done.stdout.splitlines()
    assert [("File too large. Nothing was written." in line) for line in outcome] == [True] * 3, done.stderr
    assert os.listdir(tmp_path / "_delta_log") == []


def test_folder_without_permission_to_write(tmp_path: Path) -> None:
    """As root permissions do not bind, so there the attempt is made by another user."""
    table = tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    (table / "_delta_log" / "old").write_bytes(b"old")
    (table / "_delta_log").chmod(0o555)
    for folder in (table, *table.parents):
        if os.geteuid() == 0 and folder.is_relative_to(tmp_path.parents[1]):
            folder.chmod(folder.stat().st_mode | 0o055)
    # The modules are imported before the rights are given up: the other user may not read them.
    drop = "import deltaplane.ledger.storage_local, pyarrow, os\nif os.geteuid() == 0: os.setuid(65534)\n"
    done = run(drop + textwrap.dedent(ATTEMPTS), str(table), "10")
    outcome = done.stdout.splitlines()
    assert [("Permission denied. Nothing was written." in line) for line in outcome] == [True] * 3, (
        done.stderr
    )
    assert os.listdir(table / "_delta_log") == ["old"]


def test_file_in_the_place_of_a_folder(local: Storage) -> None:
    local.put("_delta_log", b"I am a file")
    for write in writers(local).values():
        with pytest.raises(StorageError, match=r"Not a directory.*Nothing was written.*move it away"):
            write()
    with pytest.raises(StorageError, match="Not a directory"):
        list(local.list("_delta_log"))
    assert (local.exists(COMMIT), local.read("_delta_log")) == (False, b"I am a file")


def test_folder_in_the_place_of_a_file(local: Storage) -> None:
    os.makedirs(f"{local.root}/{COMMIT}")
    for write in writers(local).values():
        with pytest.raises(StorageError, match=r"Is a directory.*Nothing was written"):
            write()
    with pytest.raises(StorageError, match="Is a directory"):
        local.read(COMMIT)
    assert os.listdir(f"{local.root}/_delta_log") == [COMMIT[11:]]


def test_failure_of_other_files_within_a_sink_is_not_blamed_on_it(local: Storage, tmp_path: Path) -> None:
    def fail() -> None:
        with local.open_sink("a"), open(tmp_path / "nowhere" / "x", "rb"):
            pass

    with pytest.raises(FileNotFoundError, match="nowhere"):
        fail()
    assert local.exists("a") is False


def test_killed_writer_leaves_a_temporary_that_nobody_sees_and_the_sweep_removes(local: Storage) -> None:
    local.put("_delta_log/x", b"")
    code = """
        import sys, time
        from deltaplane.ledger.storage import open_storage
        with open_storage(sys.argv[1]).open_sink("_delta_log/00000000000000000000.json") as file:
            file.write(b"half")
            file.flush()
            print("open", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), local.root]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    left = [name for name in os.listdir(f"{local.root}/_delta_log") if name != "x"]
    assert len(left) == 1
    assert names(local, "_delta_log") == ["x"]
    assert local.sweep_temporaries("_delta_log", 60_000) == ()
    assert local.sweep_temporaries("_delta_log", 0) == tuple(left)
    assert os.listdir(f"{local.root}/_delta_log") == ["x"]


def test_sweep_touches_only_our_own_temporaries(local: Storage) -> None:
    kept = [".00.json.crc", ".x.tmp", "x.tmp", ".part.1234.tmp", "00.json"]
    for name in kept:
        local.put(f"log/{name}", b"")
    assert local.sweep_temporaries("log", 0) == ()
    assert sorted(os.listdir(f"{local.root}/log")) == sorted(kept)


def test_name_of_the_greatest_length_is_written(local: Storage) -> None:
    name = "ä" * 127
    assert local.put_if_absent(name, b"x")
    assert names(local, "") == [name]


def test_file_gets_the_permissions_that_the_umask_leaves(local: Storage) -> None:
    local.put("a", b"")
    local.put_if_absent("b", b"")
    umask = os.umask(0)
    os.umask(umask)
    modes = [os.stat(f"{local.root}/{name}").st_mode & 0o777 for name in "ab"]
    assert modes == [0o666 & ~umask] * 2


# Faults of an object store.


def lose_answer(monkeypatch: pytest.MonkeyPatch, times: int, arrives: bool) -> None:
    """The first writes end without an answer; they may have taken place."""
    real = obstore.put
    left = iter(range(times))

    def put(*args: Any, **kwargs: Any) -> Any:
        if next(left, None) is None:
            return real(*args, **kwargs)
        if arrives:
            real(*args, **kwargs)
        raise GenericError("Generic S3 error: error sending request, operation timed out")

    monkeypatch.setattr(storage_object.obstore, "put", put)
    monkeypatch.setattr(storage_object, "_FIRST_PAUSE", 0.001)


@pytest.mark.parametrize("arrives", [True, False])
def test_write_whose_answer_is_lost_is_ours_when_the_content_is(
    s3: Storage, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    lose_answer(monkeypatch, 1, arrives)
    assert s3.put_if_absent(COMMIT, b"mine") is True
    assert s3.read(COMMIT) == b"mine"


def test_write_whose_answer_is_lost_is_not_ours_when_somebody_else_was_first(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put(COMMIT, b"theirs")
    lose_answer(monkeypatch, 1, arrives=False)
    assert s3.put_if_absent(COMMIT, b"mine") is False


def test_write_that_never_gets_an_answer_is_of_unknown_outcome(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_answer(monkeypatch, 99, arrives=False)
    with pytest.raises(StorageError, match="It is not known whether the file was written"):
        s3.put_if_absent(COMMIT, b"mine")


def test_missing_bucket_is_named(s3_options: dict[str, str]) -> None:
    storage = open_storage("s3://no-such-bucket/t", s3_options)
    for act in (
        lambda: storage.put_if_absent("a", b""),
        lambda: storage.put("a", b""),
        lambda: storage.read("a"),
    ):
        with pytest.raises(StorageError, match=r"s3://no-such-bucket/t/a: there is no such bucket"):
            act()
    with pytest.raises(StorageError, match="there is no such bucket"):
        list(storage.list("a"))


def test_store_that_cannot_be_reached_is_an_error_without_secrets(
    s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_object, "_FIRST_PAUSE", 0.001)
    # Port 9 of loopback: nobody listens there.
    storage = open_storage("s3://lake/t", s3_options | {"endpoint": "http://127.0.0.1:9"})
    for act in (storage.read, storage.exists, lambda path: storage.put_if_absent(path, b"")):
        with pytest.raises(StorageError, match=r"s3://lake/t/a: the store could not be reached") as caught:
            act("a")
        assert SECRET not in str(caught.value)
        assert caught.value.__suppress_context__ is True


def test_unknown_option_is_refused_without_its_value() -> None:
    with pytest.raises(StorageError, match="one of the options colour, region is not known") as caught:
        open_storage("s3://lake/t", {"colour": SECRET, "region": "us-east-1"})
    assert SECRET not in str(caught.value)


def test_library_text_never_reaches_the_message() -> None:
    text = f"GET https://a.blob.core.windows.net/c?sig={SECRET} status code: 400 Bad <Code>BadThing</Code>"
    cause, _ = storage_object._explain(GenericError(text))
    assert cause == "the store answered with an error (400 BadThing)"


def test_full_disk_for_temporary_files_is_an_error(s3: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(storage_object.tempfile, "SpooledTemporaryFile", lambda **_: Full())

    def fail() -> None:
        with s3.open_sink("a") as sink:
            sink.write(b"x")

    with pytest.raises(StorageError, match=r"No space left.*Nothing was written"):
        fail()
    assert s3.exists("a") is False


def test_memory_is_shared_by_those_who_open_the_same_root() -> None:
    root = f"memory://{uuid.uuid4().hex}/t"
    open_storage(root).put("a", b"x")
    assert open_storage(root).read("a") == b"x"
