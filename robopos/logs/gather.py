"""Records of one channel out of an opened block, as rows: what numpy can read many of at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robopos.arrays import Ints
from robopos.errors import LogError

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.void]

# A message record: opcode, length, channel, sequence, log time, publish time, payload.
HEAD_BYTES = 31
AFTER_LENGTH = 22  # bytes of the record that are neither opcode, length nor payload
# Rows begin here in the record, so that the origin of cdr alignment falls on a multiple of 8.
SKEW = 3
PAYLOAD = HEAD_BYTES - SKEW  # offset of the payload in a row
_OPCODE = 5
_HEAD = np.dtype(
    {
        # `word` is the opcode and the low 7 bytes of the length; `top` is the length's last byte.
        "names": ["word", "top", "channel", "log", "publish"],
        "formats": ["<u8", "u1", "<u2", "<u8", "<u8"],
        "offsets": [0, 8, 9, 15, 23],
        "itemsize": HEAD_BYTES,
    }
)


def gather(raw: Bytes, offsets: Ints, width: int) -> Rows:
    """`width` bytes from each offset, one contiguous row each.

    Raises:
        LogError: a row runs over the end.
    """
    try:
        windows: Rows = np.ndarray((max(len(raw) - width + 1, 0),), f"V{width}", raw.data, 0, (1,))
        return windows[offsets]
    except IndexError:
        raise LogError("the message index points outside the chunk") from None


def read_heads(raw: Bytes, offsets: Ints, channel: int, log: Ints, publish: Ints) -> int | Ints:
    """Check the records at `offsets` and write their times into `log` and `publish` (negative: above 2^63 - 1).

    Args:
        raw: the opened block.
        offsets: int64 (n,) of the records; n > 0.
        channel: the id that they must carry.
        log, publish: int64 (n,), written.

    Returns:
        The payload length: one number where all are equal, else int64 (n,).

    Raises:
        LogError: an offset that is not at a whole message of the channel.
    """
    if int(offsets.min()) < 0:
        raise LogError("the message index points outside the chunk")
    heads = gather(raw, offsets, HEAD_BYTES).view(_HEAD)
    word = heads["word"]
    first = int(word[0])
    uniform = bool((word == first).all())
    opcodes = first & 0xFF if uniform else word & 0xFF
    if (heads["channel"] != channel).any() or heads["top"].any() or np.any(opcodes != _OPCODE):
        raise LogError("the message index points at bytes that are no message of its channel")
    log[:] = heads["log"]
    publish[:] = heads["publish"]
    lengths: int | Ints
    if uniform:
        lengths = (first >> 8) - AFTER_LENGTH
        ends = int(offsets.max()) + HEAD_BYTES + lengths
        short = lengths < 0
    else:
        lengths = (word >> 8).astype(np.int64) - AFTER_LENGTH
        ends = int((offsets + lengths).max()) + HEAD_BYTES
        short = bool((lengths < 0).any())
    if short or ends > len(raw):
        raise LogError("a message is larger than the chunk that holds it")
    return lengths
