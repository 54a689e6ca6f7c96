"""The cache of read columns, many logs at once, and bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robopos.errors import LogError
from robopos.logs import LogMessage, StreamSpec, cache, iter_messages, read_log, read_logs, write_log
from robopos.logs.schema import parse_schema
from robopos.logs.schemas import schema_text
from robopos.logs.serialize import serialize

pa = pytest.importorskip("pyarrow")
JOINTS = "sensor_msgs/msg/JointState"
SPEC = {"j": StreamSpec("/j", ["position"])}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROBOPOS_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept" / "logs"


def make(path: Path, seed: int = 0, count: int = 50) -> Path:
    rng = np.random.default_rng(seed)
    messages = []
    for i in range(count):
        names = ["a", "b", "c"][: 2 + (i > 20)]
        message = {
            "header": {"stamp": 10**9 + i, "frame_id": "base"},
            "name": names,
            "position": rng.normal(size=len(names)),
        }
        messages.append(LogMessage("/j", JOINTS, 10**9 + 5 + i, message))
    return write_log(path, messages)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the streams that are decoded, not mapped."""
    decoded: list[str] = []
    from robopos.logs import read

    real = read.decode

    def spy(readings, *rest):
        decoded.extend(reading.name for reading in readings)
        return real(readings, *rest)

    monkeypatch.setattr(read, "decode", spy)
    return decoded


@pytest.mark.parametrize("map_bytes", [1, cache.MAP_BYTES])
def test_a_second_read_is_from_the_cache_and_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, map_bytes: int
) -> None:
    monkeypatch.setattr(cache, "MAP_BYTES", map_bytes)
    path = make(tmp_path / "a.mcap")
    decoded = counted(monkeypatch)
    first = read_log(path, SPEC)
    assert decoded
    decoded.clear()
    second = read_log(path, SPEC)
    assert decoded == []
    for name in ("time_ns", "arrival_ns", "order", "values"):
        np.testing.assert_array_equal(getattr(first["j"], name), getattr(second["j"], name))
    assert repr(first) == repr(second)
    assert first.warnings == second.warnings != ()
    for name in ("names", "units", "frame_ids", "schema", "clock", "offset_ns", "zero_stamps", "encoding", "type"):
        assert getattr(first["j"], name) == getattr(second["j"], name)
    second["j"].values[0, 0] = 7  # like any array; the file does not change
    assert read_log(path, SPEC)["j"].values[0, 0] == first["j"].values[0, 0]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_many_cached_streams_keep_no_file_open(tmp_path: Path) -> None:
    for number in range(5):
        make(tmp_path / f"{number}.mcap", seed=number)
    spec = {name: StreamSpec("/j", [f"position[{name}]"]) for name in "ab"}
    read_logs(tmp_path, spec)
    before = len(os.listdir("/proc/self/fd"))
    logs = read_logs(tmp_path, spec).logs
    assert len(logs) == 5 and len(os.listdir("/proc/self/fd")) == before
    # A process may often have 1024 files open: not even a full cache of files to map comes near.
    assert cache.MAX_BYTES / cache.MAP_BYTES < 300


def test_the_same_content_under_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "a.mcap")
    read_log(path, SPEC)
    decoded = counted(monkeypatch)
    log = read_log(path.rename(tmp_path / "b.mcap"), SPEC)
    assert decoded == []
    assert log.warnings and all(text.startswith(str(tmp_path / "b.mcap: topic /j")) for text in log.warnings)


def test_other_content_fields_or_clock_are_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "a.mcap")
    read_log(path, SPEC)
    decoded = counted(monkeypatch)
    assert read_log(path, SPEC, clock="log")["j"].time_ns[0] == 10**9 + 5
    assert read_log(path, {"j": StreamSpec("/j", ["position[b]"])})["j"].values.shape == (50, 1)
    make(path, seed=1)
    assert read_log(path, SPEC)["j"].values[0, 0] == np.random.default_rng(1).normal()
    assert len(decoded) >= 3
    decoded.clear()
    read_log(path, SPEC, cache=False)
    assert decoded


def test_a_broken_cache_file_is_replaced(tmp_path: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "a.mcap")
    want = read_log(path, SPEC)["j"].values
    (kept,) = own_folder.glob("*.arrow")
    whole = kept.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"x" * len(whole)):
        kept.write_bytes(content)
        decoded = counted(monkeypatch)
        np.testing.assert_array_equal(read_log(path, SPEC)["j"].values, want)
        assert decoded
        assert kept.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "a.mcap")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROBOPOS_CACHE", str(tmp_path / "file"))
    log = read_log(path, SPEC)
    assert len(log["j"]) == 50
    assert any("were not cached" in text for text in log.warnings)


def test_nothing_damaged_is_kept(tmp_path: Path, own_folder: Path) -> None:
    path = make(tmp_path / "a.mcap")
    data = bytearray(path.read_bytes())
    path.write_bytes(bytes(data[:-4]))
    read_log(path, SPEC)
    assert not own_folder.exists() or not list(own_folder.glob("*.arrow"))


def test_a_process_that_died_midway_leaves_nothing_to_read(tmp_path: Path, own_folder: Path) -> None:
    own_folder.mkdir(parents=True)
    old, young = own_folder / "old.part", own_folder / "young.part"
    for part in (old, young):
        part.write_bytes(b"half")
    os.utime(old, (0, 0))
    read_log(make(tmp_path / "a.mcap"), SPEC)
    assert not old.exists() and young.exists()
    assert len(list(own_folder.glob("*.arrow"))) == 1


def test_what_was_not_used_for_longest_goes_first(
    tmp_path: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [make(tmp_path / f"{number}.mcap", seed=number) for number in range(3)]
    read_log(paths[0], SPEC)
    (first,) = own_folder.glob("*.arrow")
    read_log(paths[1], SPEC)
    (second,) = set(own_folder.glob("*.arrow")) - {first}
    os.utime(first, (1, 1))
    os.utime(second, (2, 2))
    read_log(paths[0], SPEC)  # used again
    monkeypatch.setattr(cache, "MAX_BYTES", int(2.5 * first.stat().st_size))
    read_log(paths[2], SPEC)
    assert first.exists() and not second.exists()
    assert len(list(own_folder.glob("*.arrow"))) == 2


def test_without_arrow_nothing_is_cached(tmp_path: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "pa", None)
    assert len(read_log(make(tmp_path / "a.mcap"), SPEC)["j"]) == 50
    assert not own_folder.exists()


def test_the_file_is_plain_arrow(tmp_path: Path, own_folder: Path) -> None:
    stream = read_log(make(tmp_path / "a.mcap"), SPEC)["j"]
    (kept,) = own_folder.glob("*.arrow")
    table = pa.ipc.open_file(pa.memory_map(str(kept))).read_all()
    assert table.column_names == ["time_ns", "arrival_ns", "order", "values"]
    np.testing.assert_array_equal(np.array(table["values"].to_pylist()), stream.values)


@pytest.mark.parametrize("workers", [1, 2])
def test_many_logs_in_order_and_one_bad_one(tmp_path: Path, workers: int, own_folder: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for number in range(4):
        make(folder / f"run_{number}.mcap", seed=number)
    (folder / "run_2.mcap").write_bytes(b"no log")
    with pytest.raises(LogError, match=r"run_2\.mcap: the file is no MCAP file"):
        read_logs(folder, SPEC, workers=workers)
    done = read_logs(str(folder / "run_*.mcap"), SPEC, on_damage="skip", workers=workers)
    assert [log.paths[0].name for log in done.logs] == ["run_0.mcap", "run_1.mcap", "run_3.mcap"]
    assert [log["j"].values[0, 0] for log in done.logs] == [np.random.default_rng(n).normal() for n in (0, 1, 3)]
    assert len(done.refused) == 1 and "run_2.mcap" in done.refused[0]
    with pytest.raises(LogError, match="there is no log"):
        read_logs(tmp_path / "kept", SPEC)
    done = read_logs([folder / "run_0.mcap", folder / "gone.mcap"], SPEC, on_damage="skip", workers=workers)
    assert len(done.logs) == 1 and done.refused == (f"{folder / 'gone.mcap'}: no such file",)


PROBE = """
import resource, sys, threading, time
from pathlib import Path
from robopos.logs import StreamSpec, read_log

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024

before, peak = anonymous(), [0]
def watch():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.005)
threading.Thread(target=watch, daemon=True).start()
stream = read_log(sys.argv[1], {"t": StreamSpec("/t", ["linear"])}, clock="log", cache=False)["t"]
print(max(peak[0], anonymous()) - before - stream.values.nbytes, len(stream))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_memory_stays_bounded(tmp_path: Path, compression: str) -> None:
    """400 MB of images beside a small topic: the columns and a bounded rest are all that is held."""
    big, small = "std_msgs/msg/UInt8MultiArray", "geometry_msgs/msg/Twist"
    noise = np.random.default_rng(0).bytes(1_000_000)
    image = serialize(parse_schema(big, schema_text(big)), {"data": noise})
    twist = serialize(parse_schema(small, schema_text(small)), {})

    def messages():
        for i in range(400):
            yield LogMessage("/image", big, 1 + i, image)
            yield LogMessage("/t", small, 1 + i, twist)

    path = write_log(tmp_path / "big.mcap", messages(), compression=compression)
    done = subprocess.run([sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, check=True)
    extra, rows = map(int, done.stdout.split())
    assert rows == 400
    assert extra < 200_000_000


def test_two_processes_may_build_one_cache(tmp_path: Path, own_folder: Path) -> None:
    path = make(tmp_path / "a.mcap", count=2000)
    code = (
        "from robopos.logs import *; spec = StreamSpec('/j', ['position']); "
        f"print(read_log({str(path)!r}, dict(j=spec))['j'].values.sum())"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    sums = {run.communicate()[0] for run in runs}
    assert len(sums) == 1 and sums != {""}
    assert len(list(own_folder.glob("*.arrow"))) == 1 and not list(own_folder.glob("*.part"))


def test_bad_options_are_named(tmp_path: Path) -> None:
    path = make(tmp_path / "a.mcap")
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: read_log(path, {}), "name at least one stream"),
        (lambda: read_log(path, SPEC, clock="stamp"), "clock 'stamp' is none of header, log, publish"),  # type: ignore[arg-type]
        (lambda: read_log(path, SPEC, on_damage="ignore"), "on_damage 'ignore'"),  # type: ignore[arg-type]
        (lambda: read_log(path, SPEC, workers=0), "workers is 0"),
        (lambda: StreamSpec("/j", "position"), "fields is a list of paths"),
        (lambda: StreamSpec("/j", []), "at least one field"),
        (lambda: StreamSpec("/j", ["x"], clock="now"), "clock 'now'"),  # type: ignore[arg-type]
        (lambda: StreamSpec("/j", ["x", 3]), "a field is 3, must be a text"),  # type: ignore[list-item]
        (lambda: StreamSpec(True, ["x"]), "topic is True, must be a text"),  # type: ignore[arg-type]
        (lambda: list(iter_messages(path, "/j")), "topics is a list, not the text '/j'"),
        (lambda: read_logs("nothing.mcap", SPEC), r"nothing\.mcap: no such file"),
        (lambda: read_logs("a\0b", SPEC), "no such file"),
        (lambda: read_logs("a" * 5000, SPEC), "cannot be read"),
        (lambda: read_logs("a" * 5000 + "*", SPEC), "cannot be read"),
    ]
    for call, words in calls:
        with pytest.raises(LogError, match=words):
            call()
