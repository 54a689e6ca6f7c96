"""Recordings of what the engine took and what the node published, as MCAP that survives SIGKILL.

A file holds one context: it begins where the engine knows nothing, so `robopos replay` of the file gives what was
published. Each message stands at once in the file, unpacked and outside chunks: a file without its end is intact up
to the last message.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mcap.writer import CompressionType, Writer

from robopos.errors import ServingError
from robopos.logs import schema_text
from robopos.sequences import InputStream
from robopos.serving import TOPIC_PREFIX, TRAJECTORY

MOST_WAITING = 50_000  # records; a disk that slow cannot record this stream


class Message(NamedTuple):
    """A message as the engine took it."""

    stream: str
    data: bytes
    arrival_ns: int
    publish_ns: int


class Published(NamedTuple):
    """What was published after the message before."""

    arrival_ns: int
    trajectories: Mapping[str, bytes]


class NewContext(NamedTuple):
    """The engine forgot all: the next message begins another file."""

    reason: str


Item = Message | Published | NewContext


class BlackBox:
    """Writes in a thread of its own, so that a slow disk delays no prediction.

    Args:
        folder: made if it is not there.
        inputs: the bundle's streams.
        facts: text by name, kept in each file as the metadata record `robopos`.
        on_failure: told once, in words, when recording ends for the sake of an error; the node goes on.

    Raises:
        ServingError: the folder cannot be made or written to.
    """

    def __init__(
        self,
        folder: Path,
        inputs: Sequence[InputStream],
        facts: Mapping[str, str],
        on_failure: Callable[[str], object],
    ) -> None:
        self._folder, self._inputs, self._facts = folder, {stream.name: stream for stream in inputs}, dict(facts)
        self._on_failure = on_failure
        self.failure = ""
        self.path: Path | None = None
        self.messages = self.predictions = 0
        self._reason = "activate"
        self._file: _File | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / ".probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ServingError(f"the parameter 'black_box' is {folder}: cannot be written to ({error})") from None
        self._queue: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="black box", daemon=False)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Hand over the next record, in order; returns at once."""
        if self.failure:
            return
        if self._queue.qsize() > MOST_WAITING:
            self._fail(f"the disk under {self._folder} is too slow: {MOST_WAITING} records were waiting")
            return
        self._queue.put(item)

    def close(self) -> None:
        """Write what waits, finish the file, end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                if not self.failure:
                    self._write(item)
            self._finish()
        except Exception as error:  # a full disk must not end the node
            where = self._folder if self._file is None else self._file.path
            self._fail(f"{where}: {type(error).__name__}: {error}")
            while self._queue.get() is not None:
                pass

    def _write(self, item: Item) -> None:
        if isinstance(item, NewContext):
            self._finish()
            self._reason = item.reason
        elif isinstance(item, Message):
            if self._file is None:
                self._file = _File(self._folder, self._inputs, self._facts | {"begins_after": self._reason})
                self.path = self._file.path
            self._file.message(item)
            self.messages += 1
        else:
            assert self._file is not None  # a prediction follows a message
            self._file.published(item)
            self.predictions += 1

    def _finish(self) -> None:
        if self._file is not None:
            self._file.finish()
            self._file = None

    def _fail(self, reason: str) -> None:
        if not self.failure:
            self.failure = reason
            self._on_failure(f"the black box ends, the node goes on: {reason}")


class _File:
    """One recording."""

    def __init__(self, folder: Path, inputs: Mapping[str, InputStream], facts: Mapping[str, str]) -> None:
        self.path, self._stream = _open_new(folder)
        self._writer = Writer(self._stream, compression=CompressionType.NONE, use_chunking=False)
        self._writer.start(profile="ros2", library="robopos")
        self._writer.add_metadata("robopos", dict(facts))
        self._channels = {}
        for stream in inputs.values():
            schema = self._writer.register_schema(stream.type, "ros2msg", stream.schema.encode())
            self._channels[stream.name] = self._writer.register_channel(f"/{stream.topic}", "cdr", schema, {})
        self._trajectory = self._writer.register_schema(TRAJECTORY, "ros2msg", schema_text(TRAJECTORY).encode())
        self._predicted: dict[str, int] = {}
        self._count = 0

    def message(self, item: Message) -> None:
        self._add(self._channels[item.stream], item.arrival_ns, item.data, item.publish_ns)

    def published(self, item: Published) -> None:
        for stream, data in item.trajectories.items():
            if stream not in self._predicted:
                topic = f"{TOPIC_PREFIX}/{stream}"  # as in a replay, whatever the node is called
                self._predicted[stream] = self._writer.register_channel(topic, "cdr", self._trajectory, {})
            self._add(self._predicted[stream], item.arrival_ns, data, item.arrival_ns)

    def _add(self, channel: int, log_ns: int, data: bytes, publish_ns: int) -> None:
        self._writer.add_message(channel, log_ns, data, publish_ns, self._count)
        self._count += 1
        self._stream.flush()

    def finish(self) -> None:
        self._writer.finish()
        self._stream.close()


def _open_new(folder: Path) -> tuple[Path, BinaryIO]:
    """A file that was not there: a robot's clock may have told this second before."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number = 0
    while True:
        path = folder / f"{stamp}-{number:03d}.mcap"
        try:
            return path, open(path, "xb")
        except FileExistsError:
            number += 1
