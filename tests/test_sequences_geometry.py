"""Differences and sums on the line, the circle and the sphere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import START_NS
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sequences_support import input_stream

from robopos.errors import ConfigError
from robopos.logs import LogMessage, read_log, write_log
from robopos.sequences import (
    SequenceDataset,
    SequenceSettings,
    StreamSettings,
    compose,
    difference,
    log_streams,
    resolve_layout,
)
from robopos.sequences.features import transform_rows
from robopos.sequences.geometry import continuous, quaternion_columns, wrap

KINDS = ("linear", "angle", "quaternion", "quaternion", "quaternion", "quaternion")


def unit(rows: np.ndarray) -> np.ndarray:
    rows = rows.copy()
    rows[:, 2:] /= np.linalg.norm(rows[:, 2:], axis=1, keepdims=True)
    return rows


rows_of = arrays(np.float64, (4, 6), elements=st.floats(-3, 3)).map(lambda x: unit(x + np.eye(4, 6, 2) * 0.1 + 1e-3))


@given(value=rows_of, base=rows_of)
def test_compose_undoes_difference(value: np.ndarray, base: np.ndarray):
    again = compose(KINDS, base, difference(KINDS, value, base))
    np.testing.assert_allclose(again[:, 0], value[:, 0], atol=1e-12)
    np.testing.assert_allclose(np.exp(1j * again[:, 1]), np.exp(1j * value[:, 1]), atol=1e-12)
    np.testing.assert_allclose(np.abs((again[:, 2:] * value[:, 2:]).sum(1)), 1.0, atol=1e-12)


def test_differences_go_the_short_way_round():
    assert difference(("angle",), np.array([-3.0]), np.array([3.0])) == pytest.approx(2 * np.pi - 6.0)
    assert wrap(np.array([np.pi, -np.pi, 3 * np.pi])) == pytest.approx([np.pi] * 3)
    q = np.array([0.0, 0.0, 0.6, 0.8])
    np.testing.assert_allclose(difference(("quaternion",) * 4, -q, q), 0.0, atol=1e-15)


@given(signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=2, max_size=30), cut=st.integers(1, 29))
def test_quaternions_are_made_continuous_in_one_piece_or_in_two(signs: list[float], cut: int):
    angle = 0.1 * np.arange(len(signs))
    smooth = np.stack([angle, angle, np.sin(angle), 0 * angle, 0 * angle, np.cos(angle)], axis=1)
    flipped = smooth.copy()
    flipped[:, 2:] *= np.array(signs)[:, None]
    whole = continuous(KINDS, flipped, None)
    np.testing.assert_array_equal(whole, smooth if signs[0] > 0 else np.where(np.arange(6) < 2, smooth, -smooth))
    cut = min(cut, len(signs) - 1)
    first = continuous(KINDS, flipped[:cut], None)
    second = continuous(KINDS, flipped[cut:], first[-1])
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([1.0, -1.0]), st.sampled_from([None, None, 1, 3])), min_size=3, max_size=12
    ),
    data=st.data(),
)
def test_half_missing_quaternions_give_the_same_features_in_one_piece_or_in_two(
    rows: list[tuple[float, int | None]], data: st.DataObject
):
    stream = input_stream("turn", tuple("xyzw"), "quaternion")
    values, cut = np.array([[0.5 * sign] * 4 for sign, _ in rows]), data.draw(st.integers(0, len(rows)))
    for row, (_, missing) in zip(values, rows, strict=True):
        row[[] if missing is None else [missing]] = np.nan
    time_ns = np.arange(len(rows))
    whole = transform_rows(stream, values, time_ns, None)
    first = transform_rows(stream, values[:cut], time_ns[:cut], None)
    second = transform_rows(stream, values[cut:], time_ns[cut:], first.memory)
    np.testing.assert_array_equal(np.concatenate([first.features, second.features]), whole.features)


def test_neighbouring_quaternions_are_told_apart():
    assert quaternion_columns(("linear", *("quaternion",) * 8)) == [slice(1, 5), slice(5, 9)]


@pytest.fixture(scope="module")
def heading_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A robot that turns at 0.5 rad/s; the sign of its quaternion flips every third message."""
    path = tmp_path_factory.mktemp("heading") / "heading.mcap"
    messages = []
    for i in range(400):
        time_s, sign = 0.05 * i, -1.0 if i % 3 == 0 else 1.0
        half = 0.25 * time_s
        content = {
            "header": {"stamp": START_NS + round(time_s * 1e9)},
            "pose": {"pose": {"orientation": {"z": sign * np.sin(half), "w": sign * np.cos(half)}}},
            "twist": {"twist": {"angular": {"z": float(wrap(np.array(0.5 * time_s)))}}},
        }
        messages.append(LogMessage("/odom", "nav_msgs/msg/Odometry", START_NS + round(time_s * 1e9), content))
    write_log(path, messages)
    return path


def test_headings_and_orientations_are_predicted_on_the_circle_and_the_sphere(heading_log: Path):
    orientation, heading = "pose.pose.orientation", "twist.twist.angular.z"
    settings = SequenceSettings(
        {"odom": StreamSettings("/odom", [orientation, heading], angle=[heading])},
        {"odom": [orientation, heading]},
        [0.2],
    )
    log = read_log(heading_log, log_streams(settings))
    layout = resolve_layout(settings, log)
    assert layout.target_kinds == ("quaternion",) * 4 + ("angle",)
    assert layout.feature_names[4:] == (f"odom.sin({heading})", f"odom.cos({heading})")
    dataset = SequenceDataset.build([log], layout)
    known = np.isfinite(dataset.targets).all(axis=(1, 2))
    assert known.sum() > 390
    # Signs flip in the log and nowhere here: all that moves is the rotation.
    assert np.abs(np.diff(dataset.table.features[:, :4], axis=0)).max() < 0.02
    truth = dataset.targets[known][:, 0]
    moved = dataset.baselines.constant_velocity(layout)[known][:, 0]
    error = difference(layout.target_kinds, moved, truth)
    assert np.abs(error[2:]).max() < 2e-3
    np.testing.assert_allclose(np.linalg.norm(moved[:, :4], axis=1), 1.0)
    assert np.abs(truth[:, 4]).max() <= np.pi


def test_a_part_of_a_quaternion_is_no_target(heading_log: Path):
    settings = SequenceSettings(
        {"odom": StreamSettings("/odom", ["pose.pose.orientation"])}, {"odom": ["pose.pose.orientation.w"]}, [0.2]
    )
    with pytest.raises(ConfigError, match="is a quaternion: name it whole"):
        resolve_layout(settings, read_log(heading_log, log_streams(settings)))
