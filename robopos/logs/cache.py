"""Read columns kept as Arrow IPC files, taken when the same log is read again.

A file is keyed by the content of the log (the CRCs that its chunks carry, or its bytes where they carry none), by
its time of change and by what was asked of it. It is written beside and renamed, so that two processes may build
it at once and one may die midway. The folder is $ROBOPOS_CACHE, else robopos/ in the user's cache folder; it may
be deleted at any time, and beyond MAX_BYTES the files that were not used for longest go. Needs `pyarrow`
(pip install 'robopos[cache]'); without it nothing is cached.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import fields
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robopos._version import __version__
from robopos.logs.container import Container
from robopos.logs.log import Stream
from robopos.logs.records import StreamSpec

try:
    import pyarrow as pa
except ImportError:  # an extra
    pa = None

# Raised when what is stored changes its meaning.
FORMAT = 2
_TIMES = ("time_ns", "arrival_ns", "order")
_ARRAYS = (*_TIMES, "values")
_STALE_S = 3600.0
MAX_BYTES = 20_000_000_000
# A map keeps its file open, and a process may often have no more than 1024 open: smaller files are read, into as much
# memory as the log's columns take without a cache. Of those that are mapped, MAX_BYTES are fewer than 300.
MAP_BYTES = 1 << 26


class Entry(NamedTuple):
    """A cached stream, and the warnings that reading it gave, without the log's name at their beginning."""

    stream: Stream
    warnings: list[str]


def cache_folder() -> Path:
    """Where the files are kept."""
    given = os.environ.get("ROBOPOS_CACHE")
    if given:
        return Path(given) / "logs"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robopos" / "logs"


def available() -> bool:
    """Whether `pyarrow` is installed."""
    return pa is not None


def content_key(container: Container) -> str:
    """A key of one file's content, from what the walk has read already wherever the chunks carry CRCs."""
    digest = hashlib.blake2b(digest_size=20)
    status = os.stat(container.path)
    digest.update(f"{len(container.data)} {status.st_mtime_ns} {len(container.blocks)}".encode())
    for block in container.blocks:
        digest.update(f"{block.start} {block.length} {block.compression} {block.size} {block.crc};".encode())
        if not block.crc:
            digest.update(container.data[block.start : block.start + block.length])
    for schema in container.schemas.values():
        digest.update(f"{schema.id} {schema.name} {schema.encoding} ".encode() + schema.data)
    for channel in container.channels.values():
        digest.update(repr(channel).encode())
    return digest.hexdigest()


def stream_path(contents: list[str], name: str, spec: StreamSpec, clock: str) -> Path:
    """The file of one stream of a log."""
    asked = [FORMAT, __version__, contents, name, spec.topic, list(spec.fields), clock]
    digest = hashlib.blake2b(json.dumps(asked).encode(), digest_size=20)
    return cache_folder() / f"{digest.hexdigest()}.arrow"


def load(path: Path) -> Entry | None:
    """Read or map a stream that was stored; None where there is none, or it is broken (it is deleted then)."""
    if pa is None:
        return None
    try:
        with open(path, "rb") as stream:
            held = _held(stream)
    except OSError:
        return None
    try:
        whole = pa.py_buffer(held)
        reader = pa.ipc.open_file(whole)
        facts = json.loads(reader.schema.metadata[b"robopos"])
        batch = reader.get_batch(0)
        arrays: dict[str, Any] = {}
        for name in _ARRAYS:
            column = batch.column(batch.schema.get_field_index(name))
            flat = column.values if name == "values" else column
            start = flat.buffers()[1].address - whole.address
            # From the bytes or the map (of private pages) itself: to be written to like freshly read arrays.
            arrays[name] = np.frombuffer(held, np.float64 if name == "values" else np.int64, len(flat), start)
        rows, columns = facts.pop("shape")
        arrays["values"] = arrays["values"].reshape(rows, columns)
        warnings = [str(text) for text in facts.pop("warnings")]
        for name in ("names", "units", "frame_ids"):
            facts[name] = tuple(facts[name])
        entry = Entry(Stream(**facts, **arrays), warnings)
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, AttributeError, OverflowError):
        path.unlink(missing_ok=True)
        return None
    with suppress(OSError):  # a folder that is only read from
        os.utime(path)
    return entry


def _held(stream: BufferedReader) -> bytearray | mmap.mmap:
    size = os.fstat(stream.fileno()).st_size
    if size >= MAP_BYTES:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    held = bytearray(size)
    stream.readinto(held)
    return held


def store(path: Path, stream: Stream, warnings: list[str]) -> str:
    """Keep a stream; returns why it could not be kept, or "". A failure leaves nothing behind."""
    if pa is None:
        return ""
    facts: dict[str, Any] = {f.name: getattr(stream, f.name) for f in fields(stream) if f.name not in _ARRAYS}
    facts |= {"shape": stream.values.shape, "warnings": warnings}
    columns = [pa.array(getattr(stream, name)) for name in _TIMES]
    flat = pa.array(np.ascontiguousarray(stream.values).reshape(-1))
    columns.append(pa.FixedSizeListArray.from_arrays(flat, max(stream.values.shape[1], 1)))
    schema = pa.schema(
        [pa.field(name, column.type) for name, column in zip(_ARRAYS, columns, strict=True)],
        metadata={"robopos": json.dumps(facts)},
    )
    beside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        handle, beside = tempfile.mkstemp(suffix=".part", dir=path.parent)
        os.close(handle)
        with pa.OSFile(beside, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(columns, schema=schema))
        os.replace(beside, path)
        _trim(path)
    except OSError as error:
        if beside is not None:
            Path(beside).unlink(missing_ok=True)
        return f"the columns of {stream.topic} were not cached: {error}"
    return ""


def _trim(newest: Path) -> None:
    """Delete the files that were not used for longest until MAX_BYTES are left; maps of them stay valid."""
    held = []
    for file in newest.parent.glob("*.arrow"):
        with suppress(OSError):  # another process deleted it
            status = file.stat()
            held.append((status.st_mtime_ns, status.st_size, file))
    total = sum(size for _, size, _ in held)
    for _, size, file in sorted(held):
        if total <= MAX_BYTES:
            return
        if file != newest:
            file.unlink(missing_ok=True)
            total -= size


def _sweep(folder: Path) -> None:
    """Delete what a process that died left half written."""
    for part in folder.glob("*.part"):
        try:
            if time.time() - part.stat().st_mtime > _STALE_S:
                part.unlink()
        except OSError:  # another process was faster
            continue
