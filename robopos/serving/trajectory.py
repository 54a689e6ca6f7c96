"""Predictions as trajectory_msgs/JointTrajectory: the same bytes from replay, from the node and in its recordings."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np

from robopos.arrays import Floats
from robopos.errors import ServingError
from robopos.logs import LogMessage, parse_schema, schema_text, serialize
from robopos.sequences import SequenceLayout
from robopos.serving.engine import Prediction
from robopos.stamps import NS_PER_S

TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
TOPIC_PREFIX = "/predictor/prediction"  # where the ROS 2 node publishes under its default name
_STAMP = struct.Struct("<iI")
_NO_ZERO_BYTE = np.frombuffer(b"\x01" * 8, "<f8").item()
_STAMP_AT = 4  # the header's stamp comes first, behind the four bytes that name the encoding


def fits_stamp(time_ns: int) -> bool:
    """Whether the seconds of a time fit the 32 bits of a ROS 2 stamp; a message with too many nanoseconds may not."""
    return -(2**31) <= time_ns // NS_PER_S < 2**31


class TrajectoryWriter:
    """One stream's predictions as messages: only numbers differ between two of them, and only these are written.

    ``header.stamp`` is the time that horizons count from, ``joint_names`` the fields, ``time_from_start`` the horizons.

    Args:
        names: the T fields.
        horizons_s: (H,) seconds.
    """

    def __init__(self, names: Sequence[str], horizons_s: Sequence[float]) -> None:
        self._shape = len(horizons_s), len(names)
        schema = parse_schema(TRAJECTORY, schema_text(TRAJECTORY))
        self._template, other = (
            serialize(
                schema,
                {
                    "joint_names": list(names),
                    "points": [
                        {"positions": [value] * len(names), "time_from_start": round(horizon_s * NS_PER_S)}
                        for horizon_s in horizons_s
                    ],
                },
            )
            for value in (0.0, _NO_ZERO_BYTE)
        )
        # The bytes that differ are the values' and no others, whatever bytes the names and the horizons have.
        differ = np.frombuffer(self._template, "u1") != np.frombuffer(other, "u1")
        self._rows_at = np.flatnonzero(differ).reshape(len(horizons_s), -1)[:, 0].tolist()

    @classmethod
    def of(cls, layout: SequenceLayout, stream: str) -> TrajectoryWriter:
        """The writer of one stream that is predicted."""
        names = [layout.target_names[column].removeprefix(f"{stream}.") for column in layout.target_columns[stream]]
        return cls(names, layout.horizons_s)

    def write(self, time_ns: int, values: Floats) -> bytes:
        """The message of ``values`` (H, T), predicted from ``time_ns``.

        Raises:
            ServingError: values of another shape, or a time whose seconds do not fit the stamp's 32 bits.
        """
        if values.shape != self._shape:
            raise ServingError(f"values of shape {values.shape} do not fit a trajectory of {self._shape}")
        if not fits_stamp(time_ns):
            raise ServingError(f"the time {time_ns} ns does not fit the 32-bit seconds of a ROS 2 stamp")
        data = bytearray(self._template)
        _STAMP.pack_into(data, _STAMP_AT, *divmod(time_ns, NS_PER_S))
        for at, row in zip(self._rows_at, values.astype("<f8"), strict=True):
            data[at : at + row.nbytes] = row.tobytes()
        return bytes(data)


class Trajectories:
    """All that a bundle predicts, as log messages on the node's topics."""

    def __init__(self, layout: SequenceLayout) -> None:
        self._streams = {
            stream: (columns, TrajectoryWriter.of(layout, stream)) for stream, columns in layout.target_columns.items()
        }

    def of(self, prediction: Prediction, log_time_ns: int) -> Iterator[LogMessage]:
        """One message a predicted stream; none for a value that is not finite or a time that does not fit a stamp."""
        if not fits_stamp(prediction.time_ns):
            return
        for stream, (columns, writer) in self._streams.items():
            values = prediction.values[:, columns]
            if np.isfinite(values).all():
                data = writer.write(prediction.time_ns, values)
                yield LogMessage(f"{TOPIC_PREFIX}/{stream}", TRAJECTORY, log_time_ns, data)
