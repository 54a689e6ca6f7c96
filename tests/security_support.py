"""Attacks for the tests of SECURITY.md: run aside, with a limit on memory and on time."""

from __future__ import annotations

import multiprocessing
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robopos.errors import RoboposError
from robopos.logs import StreamSpec, inspect_log, read_log

PATIENCE_S = 60.0
ROOM_BYTES = 2 << 30  # beyond what the process has mapped already

MAGIC = b"\x89MCAP0\r\n"
CDR = b"\0\1\0\0"


def told(work: Callable[[], object]) -> str:
    """What a named error says; "" where the work is done without one.

    Any other error, more memory than ROOM_BYTES and more time than PATIENCE_S fail the test.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_bounded, args=(work, theirs), daemon=True)
    child.start()
    theirs.close()
    if not ours.poll(PATIENCE_S):
        child.kill()
        child.join()
        raise AssertionError(f"no answer within {PATIENCE_S} s")
    kind, text = ours.recv()
    child.join()
    assert kind == "answer", text
    return str(text)


def _bounded(work: Callable[[], object], answer: Any) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        work()
        answer.send(("answer", ""))
    except RoboposError as error:
        answer.send(("answer", str(error)))
    except BaseException as error:
        answer.send(("failure", f"{type(error).__name__}: {str(error)[:300]}"))


# --- MCAP, record by record ---


def record(opcode: int, body: bytes) -> bytes:
    return struct.pack("<BQ", opcode, len(body)) + body


def text(content: str | bytes) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return struct.pack("<I", len(raw)) + raw


def schema(type: str, encoding: str, content: str | bytes) -> bytes:
    return record(3, struct.pack("<H", 1) + text(type) + text(encoding) + text(content))


def channel(topic: str = "/t", encoding: str = "cdr", number: int = 1, schema: int = 1) -> bytes:
    return record(4, struct.pack("<HH", number, schema) + text(topic) + text(encoding) + text(b""))


def message(data: bytes, time_ns: int = 1) -> bytes:
    return record(5, struct.pack("<HIQQ", 1, 0, time_ns, time_ns) + data)


def chunk(compression: str, packed: bytes, size: int) -> bytes:
    head = struct.pack("<QQQI", 0, 1, size, 0)
    return record(6, head + text(compression) + struct.pack("<Q", len(packed)) + packed)


def write(path: Path, *records: bytes) -> Path:
    path.write_bytes(MAGIC + b"".join(records) + record(15, bytes(4)) + record(2, bytes(20)) + MAGIC)
    return path


def write_one(path: Path, definition: str | bytes, data: bytes, encoding: str = "ros2msg", wire: str = "cdr") -> Path:
    """A log of one message of the type a/msg/B (ROS 1, protobuf: a/B, a.B) on the topic /t."""
    type = {"ros1msg": "a/B", "protobuf": "a.B"}.get(encoding, "a/msg/B")
    return write(path, schema(type, encoding, definition), channel(encoding=wire), message(data))


def read(path: Path, field: str = "x") -> str:
    """What reading the field says, after the inspection, which lists what it cannot read."""
    inspected = told(lambda: inspect_log(path))
    assert not inspected or str(path)[:200] in inspected
    return told(lambda: read_log(path, {"t": StreamSpec("/t", [field])}, clock="log", cache=False))
