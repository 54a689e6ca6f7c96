"""The frame_id of serialized messages, looked at without decoding them."""

from __future__ import annotations

from collections.abc import Sequence

from robopos.logs import parse_schema
from robopos.logs.template import has_header
from robopos.sequences import InputStream

_AT = 12  # after 4 bytes of encapsulation and the 8 of the stamp: a Header stands first in a message


class Frames:
    """The frames that a model was trained on."""

    def __init__(self, frame_ids: Sequence[str]) -> None:
        self._known = frozenset(frame_ids)
        texts = [frame.encode() + b"\0" for frame in frame_ids]
        self._usual = tuple(len(text).to_bytes(4, "little") + text for text in texts)

    @classmethod
    def of(cls, stream: InputStream) -> Frames | None:
        """None for a stream without a header, or whose log had no frames."""
        if not any(stream.frame_ids) or not has_header(parse_schema(stream.type, stream.schema)):
            return None
        return cls(stream.frame_ids)

    def other(self, data: bytes) -> str | None:
        """The frame_id of a message, when it is none of these; None too for bytes that are no such message."""
        if data.startswith(self._usual, _AT):
            return None
        if len(data) < _AT + 4:
            return None
        order = "little" if data[1] & 1 else "big"
        length = int.from_bytes(data[_AT : _AT + 4], order)  # type: ignore[arg-type]
        if not 0 < length <= len(data) - _AT - 4:
            return None
        frame = data[_AT + 4 : _AT + 3 + length].decode("utf-8", "replace")
        return None if frame in self._known else frame
