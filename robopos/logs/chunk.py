"""Blocks of an MCAP file: opening a chunk safely, and finding its records without an index."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import lz4.frame
import zstandard

from robopos.errors import LogError

# No chunk may unpack to more: a broken length must not take the machine's memory.
MAX_CHUNK_BYTES = 1 << 30
# Nor may all chunks of a file together unpack to more than this, or so many times its size, whichever is more.
EXPANSION_BYTES, EXPANSION = 1 << 28, 1000
_own = threading.local()
RECORD = struct.Struct("<BQ")


class Block(NamedTuple):
    """A stretch of bytes that holds message records: a chunk, or loose messages between chunks.

    Attributes:
        number: its place in the file.
        start, length: its (compressed) bytes in the file.
        compression: "", "lz4" or "zstd" as the file says.
        size: bytes when opened.
        crc: CRC-32 of the opened bytes, 0 where none was stored.
    """

    number: int
    start: int
    length: int
    compression: str
    size: int
    crc: int


def check_expansion(blocks: Iterable[Block], size: int, where: str) -> None:
    """Refuse a file of `size` bytes that unpacks to far more: no recording is that empty.

    Raises:
        LogError: a decompression bomb.
    """
    # A chunk that claims more than one may is refused alone, when it is opened.
    total = sum(block.size for block in blocks if block.compression and block.size <= MAX_CHUNK_BYTES)
    most = max(EXPANSION_BYTES, EXPANSION * size)
    if total > most:
        raise LogError(f"{where}: {size} bytes claim to unpack to {total}; the limit for a file of that size is {most}")


def open_block(data: memoryview, block: Block, where: str) -> memoryview:
    """Unpack a block of the mapped file and check its CRC. Safe to call from several threads.

    Raises:
        LogError: naming the chunk: unknown compression, a size beyond MAX_CHUNK_BYTES, bytes that do not
            unpack to the stated size, a wrong CRC.
    """
    packed = data[block.start : block.start + block.length]
    place = f"{where}: chunk at byte {block.start}"
    if block.size > MAX_CHUNK_BYTES and block.compression:
        raise LogError(f"{place} claims to unpack to {block.size} bytes; the limit is {MAX_CHUNK_BYTES}")
    try:
        if block.compression == "":
            opened = packed
        elif block.compression == "zstd":
            opened = memoryview(_zstd(packed, block.size))
        elif block.compression == "lz4":
            opened = memoryview(_lz4(packed, block.size))
        else:
            raise LogError(f"{place} has compression {block.compression!r}; known are zstd, lz4 and none")
    except (zstandard.ZstdError, RuntimeError, EOFError, ValueError, MemoryError) as error:
        raise LogError(f"{place} does not unpack ({block.compression}: {error})") from error
    if len(opened) != block.size:
        raise LogError(f"{place} unpacks to {len(opened)} bytes instead of {block.size}")
    if block.crc and zlib.crc32(opened) != block.crc:
        raise LogError(f"{place} has a wrong CRC: its bytes were changed")
    return opened


def _zstd(packed: memoryview, size: int) -> bytes:
    content = zstandard.frame_content_size(packed)
    if content not in (-1, size):
        raise ValueError(f"the frame holds {content} bytes, the record says {size}")
    if size == 0:
        return b""
    # One decompressor a thread: making one costs a tenth of unpacking a chunk.
    if not hasattr(_own, "zstd"):
        _own.zstd = zstandard.ZstdDecompressor()
    unpacked: bytes = _own.zstd.decompress(packed, max_output_size=size)
    return unpacked


def _lz4(packed: memoryview, size: int) -> bytes:
    content = lz4.frame.get_frame_info(packed)["content_size"] if len(packed) else 0
    if content == size:
        whole: bytes = lz4.frame.decompress(packed)
        return whole
    if content:
        raise ValueError(f"the frame holds {content} bytes, the record says {size}")
    # The frame does not tell its size: grow, but not beyond what the record says.
    grown: bytes = lz4.frame.LZ4FrameDecompressor().decompress(packed, max_length=size + 1)
    return grown


class Record(NamedTuple):
    """One record inside opened bytes: `at` is the offset of its opcode, `body` and `length` of its content."""

    opcode: int
    at: int
    body: int
    length: int


def records(opened: memoryview, where: str) -> Iterator[Record]:
    """The records of an opened chunk, one by one.

    Raises:
        LogError: a record that runs over the end.
    """
    at, size = 0, len(opened)
    while at < size:
        if size - at < RECORD.size:
            raise LogError(f"{where}: {size - at} stray bytes at the end of the chunk")
        opcode, length = RECORD.unpack_from(opened, at)
        body = at + RECORD.size
        if opcode == 0:
            raise LogError(f"{where}: a record inside the chunk has opcode 0, which none may have")
        if length > size - body:
            raise LogError(f"{where}: a record inside the chunk claims {length} bytes, {size - body} are left")
        yield Record(opcode, at, body, length)
        at = body + length
