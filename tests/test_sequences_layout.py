"""What settings and a log make of streams, features and targets; what does not fit is named."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import arm_messages
from sequences_support import sequence_settings

from robopos.errors import ConfigError, SequenceError
from robopos.logs import Log, read_log, write_log
from robopos.sequences import (
    SequenceDataset,
    SequenceLayout,
    StreamSettings,
    log_streams,
    read_messages,
    resolve_layout,
)


@pytest.fixture(scope="module")
def log(arm_log: Path) -> Log:
    return read_log(arm_log, log_streams(sequence_settings()), clock="header")


@pytest.fixture(scope="module")
def layout(log: Log) -> SequenceLayout:
    return resolve_layout(sequence_settings(), log)


def test_layout_names_features_and_targets_and_survives_plain_types(layout: SequenceLayout):
    assert layout.feature_names[:2] == ("joints.position[shoulder]", "joints.position[elbow]")
    assert layout.target_names == (
        "joints.position[shoulder]",
        "joints.position[elbow]",
        "imu.angular_velocity.x",
    )
    assert layout.num_features == 5
    assert SequenceLayout.from_dict(layout.to_dict()) == layout


@pytest.fixture
def otherwise(tmp_path: Path) -> Path:
    """The log of `arm_log`, its joints listed in the other order."""
    turned = []
    for message in arm_messages():
        content = dict(message.message)
        if "name" in content:
            content |= {"name": content["name"][::-1], "position": content["position"][::-1]}
        turned.append(message._replace(message=content))
    return write_log(tmp_path / "otherwise.mcap", turned)


def test_logs_may_list_their_joints_in_different_orders(arm_log: Path, otherwise: Path):
    asked = sequence_settings(
        streams=sequence_settings().streams | {"joints": StreamSettings("/joint_states", ["position"])}
    )
    one, other = (read_log(path, log_streams(asked)) for path in (arm_log, otherwise))
    assert one["joints"].names == other["joints"].names[::-1]
    layout = resolve_layout(asked, one)
    tables = [read_messages([each], layout) for each in (one, other)]
    np.testing.assert_array_equal(tables[0].features, tables[1].features)
    np.testing.assert_array_equal(tables[0].observed, tables[1].observed)
    both = SequenceDataset.build([one, other], layout)
    assert len(both.table) == 2 * len(tables[0])


def test_a_field_that_another_log_lacks_is_named(log: Log, layout: SequenceLayout):
    poor = log["joints"]
    fewer = Log(dict(log) | {"joints": replace(poor, names=("position[wrist]", *poor.names[1:]))}, log.paths, ())
    with pytest.raises(
        SequenceError, match=r"topic /joint_states has no field position\[shoulder\]; it has position\[wrist\], "
    ):
        read_messages([fewer], layout)


def test_a_description_with_two_input_streams_of_one_topic_is_refused(layout: SequenceLayout):
    described = layout.to_dict()
    described["streams"][1]["topic"] = f"/{described['streams'][0]['topic']}"
    with pytest.raises(ConfigError, match="two input streams read one topic: joint_states, joint_states"):
        SequenceLayout.from_dict(described)


def test_a_target_that_is_no_field_is_named(log: Log):
    with pytest.raises(ConfigError, match=r"stream imu has no field 'temperature'; it has angular_velocity\.x"):
        resolve_layout(sequence_settings(targets={"imu": ["temperature"]}), log)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"horizons_s": [0.2, 0.1]}, "horizons_s .* ascending"),
        ({"horizons_s": [-1.0]}, "horizons_s is -1.0"),
        ({"targets": {"lidar": ["x"]}}, "targets is 'lidar', must be one of the streams joints, imu"),
        ({"clock": "wall"}, "clock is 'wall', must be one of header, log, publish"),
        ({"max_gap_s": math.nan}, "max_gap_s is nan"),
        ({"max_lateness_s": 3.0}, "max_lateness_s is 3.0"),
        ({"streams": {}}, "streams is {}"),
        ({"max_gap_s": 1e9}, r"max_gap_s is 1000000000.0, must be a time > 0 in s and below 1e\+09"),
        ({"horizons_s": [0.1, 2e9]}, r"horizons_s is 2000000000.0, must be a time > 0 in s and below 1e\+09"),
        (
            {"streams": {"left-arm": StreamSettings("/joint_states", ["position"])}},
            "streams is 'left-arm', must be a name of letters, digits and _ that begins with a letter",
        ),
        (
            {"streams": sequence_settings().streams | {"again": StreamSettings("joint_states", ["velocity"])}},
            r"streams is \['joints', 'again'\], must be of one topic each where the model sees them",
        ),
    ],
)
def test_wrong_settings_name_the_parameter(change: dict, match: str):
    with pytest.raises(ConfigError, match=match):
        sequence_settings(**change)
