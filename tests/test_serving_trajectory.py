"""Predictions as serialized JointTrajectory: only the numbers of a template are written, and nothing else changes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from robopos.errors import ServingError
from robopos.logs import schema_text
from robopos.logs.schema import parse_schema
from robopos.logs.serialize import serialize
from robopos.serving import Prediction
from robopos.serving.trajectory import TRAJECTORY, Trajectories, TrajectoryWriter

TYPE = parse_schema(TRAJECTORY, schema_text(TRAJECTORY))
NAMES = st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=7), min_size=1, max_size=5)


def whole_message(names, horizons_ns, time_ns, values):
    points = [
        {"positions": row, "time_from_start": horizon_ns} for row, horizon_ns in zip(values, horizons_ns, strict=True)
    ]
    return serialize(TYPE, {"header": {"stamp": time_ns}, "joint_names": names, "points": points})


@given(
    names=NAMES,
    horizons_ns=st.lists(st.integers(0, 10**11), min_size=1, max_size=4),
    time_ns=st.integers(-(2**31) * 10**9, 2**31 * 10**9 - 1),
    data=st.data(),
)
def test_the_bytes_are_those_of_the_whole_message(names, horizons_ns, time_ns, data):
    values = data.draw(arrays("f8", (len(horizons_ns), len(names))))
    writer = TrajectoryWriter(names, [horizon_ns * 1e-9 for horizon_ns in horizons_ns])
    writer.write(1, np.zeros_like(values))  # leaves no trace in the next one
    assert writer.write(time_ns, values) == whole_message(names, horizons_ns, time_ns, values)


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0, np.frombuffer(b"\x01" * 8)[0]])
@pytest.mark.parametrize("horizons_ns", [[64, 0], [0, 0x3FF00000 << 2], [0x01010101, 0x01010101 * 1001]])
def test_names_and_horizons_whose_bytes_read_like_values_are_left_alone(horizons_ns, value):
    names = ["", "\x01" * 8, "\x01" * 16]
    for count in (1, 2, 3):
        values = np.full((len(horizons_ns), count), value)
        written = TrajectoryWriter(names[:count], [horizon_ns * 1e-9 for horizon_ns in horizons_ns]).write(5, values)
        assert written == whole_message(names[:count], horizons_ns, 5, values)


def test_a_shape_or_a_time_that_does_not_fit_is_named():
    writer = TrajectoryWriter(["a", "b"], [0.1])
    with pytest.raises(ServingError, match=r"values of shape \(2, 1\) do not fit a trajectory of \(1, 2\)"):
        writer.write(0, np.zeros((2, 1)))
    with pytest.raises(ServingError, match="the time 2147483648000000000 ns does not fit the 32-bit seconds"):
        writer.write(2**31 * 10**9, np.zeros((1, 2)))


@pytest.mark.parametrize(("time_ns", "count"), [(2**31 * 10**9 - 1, 1), (2**31 * 10**9, 0), (-(2**31) * 10**9 - 1, 0)])
def test_a_prediction_whose_time_fits_no_stamp_gives_no_message(time_ns, count):
    layout = SimpleNamespace(target_columns={"a": (0,)}, target_names=("a.x",), horizons_s=(0.1,))
    prediction = Prediction(time_ns, np.array([0.1]), np.ones((1, 1)), None, ("a.x",))
    assert len(list(Trajectories(layout).of(prediction, 0))) == count
