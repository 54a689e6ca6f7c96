"""data/prepare.py: recordings become messages with their own times, and logs that are whole."""

from __future__ import annotations

import math
import sys
import zipfile
from pathlib import Path

import pytest

from robopos.logs import StreamSpec, read_log

DATA = Path(__file__).resolve().parents[1] / "data"
sys.path.insert(0, str(DATA))

import prepare  # noqa: E402
import recordings  # noqa: E402
from recordings import EPOCH_NS, RecordingError  # noqa: E402

MOWER_ODOMETRY = """
  1.0000000000000000e+001	 5.0	 0.7
  1.0200000000000000e+001	 2.0000000000000001e-001	 0.0
  1.0400000000000000e+001	 3.0000000000000000e-001	 1.5707963267948966e+000
  1.0650000000000000e+001	 2.5000000000000000e-001	 0.0
"""
MOWER_RANGES = """
  1.0500000000000000e+001	 2.0	 6.0	 4.25e+001
  1.0100000123456789e+001	 2.0	 0.0	 1.25e+001
"""


def test_time_is_exact_to_the_nanosecond():
    # 46534.47837579 s is not a float64 number of ns at this epoch; the text is.
    assert recordings.time_ns("46534.478375790000428") == EPOCH_NS + 46_534_478_375_790
    assert recordings.time_ns("  3.8570532019138336e+003".strip()) == EPOCH_NS + 3_857_053_201_914


@pytest.mark.parametrize("angle", [0.0, 1e-9, -0.149, 0.785, 3.0, -12.5])
def test_cos_sin_agrees_with_the_library(angle):
    assert recordings._cos_sin(angle) == pytest.approx((math.cos(angle), math.sin(angle)), abs=1e-11)


def test_mower_dead_reckons_and_sorts():
    messages = recordings.mower(MOWER_ODOMETRY, MOWER_RANGES)
    assert [(m.topic, m.log_time_ns - EPOCH_NS) for m in messages] == [
        ("range/beacon_0", 10_100_000_123),
        ("odometry", 10_200_000_000),
        ("odometry", 10_400_000_000),
        ("range/beacon_6", 10_500_000_000),
        ("odometry", 10_650_000_000),
    ]
    assert messages[0].message["range"] == 12.5
    assert messages[0].message["header"]["stamp"] == messages[0].log_time_ns
    straight, turn, after = (m.message for m in messages if m.topic == "odometry")
    # The first row has no interval: neither its distance nor its turn counts.
    assert straight["twist"]["twist"]["linear"]["x"] == pytest.approx(1.0, rel=1e-12)
    assert straight["pose"]["pose"]["position"]["x"] == pytest.approx(0.2)
    assert turn["twist"]["twist"]["angular"]["z"] == pytest.approx(math.pi / 2 / 0.2)
    diagonal = 0.3 * math.sqrt(0.5)
    assert turn["pose"]["pose"]["position"]["x"] == pytest.approx(0.2 + diagonal)
    assert after["twist"]["twist"]["linear"]["x"] == pytest.approx(1.0)  # 0.25 m in 0.25 s
    assert after["pose"]["pose"]["position"]["x"] == pytest.approx(0.2 + diagonal)
    assert after["pose"]["pose"]["position"]["y"] == pytest.approx(diagonal + 0.25)
    assert after["pose"]["pose"]["orientation"]["w"] == pytest.approx(math.cos(math.pi / 4))


def test_car_keeps_acceleration_and_rate_apart():
    imu = "Time dt accelX accelY accelZ omegaX omegaY omegaZ\n5.5 5.5 1 2 3 4 5 6\n5.51 0.01 7 8 9 10 11 12\n"
    positions = "Time,X,Y,Z\n5.505,-1.5,2.5,0.25\n"
    first, position, second = recordings.car(imu, positions)
    assert first.message["linear_acceleration"] == {"x": 1.0, "y": 2.0, "z": 3.0}
    assert first.message["angular_velocity"] == {"x": 4.0, "y": 5.0, "z": 6.0}
    assert first.message["orientation_covariance"][0] == -1.0
    assert position.message["point"] == {"x": -1.5, "y": 2.5, "z": 0.25}
    assert (second.log_time_ns - first.log_time_ns) == 10_000_000


def test_stairs_gathers_feet_into_events():
    imu = "sample_index,timestamp_s,omega_x,omega_y,omega_z,acc_x,acc_y,acc_z\n0,0.013,1,2,3,4,5,6\n"
    contacts = (
        "event_index,timestamp_s,foot_index,foot_name,is_new_contact,body_x,body_y,body_z\n"
        "0,0.02,1,FR,0,0.1,0.2,0.3\n0,0.02,2,RL,0,0.4,0.5,0.6\n1,0.12,1,FR,0,0.7,0.8,0.9\n"
    )
    messages = recordings.stairs(imu, contacts)
    states = [m.message["position"] for m in messages if m.topic == "contacts"]
    assert states == [[0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    assert [m.topic for m in messages] == ["imu", "foot/fr", "foot/rl", "contacts", "foot/fr", "contacts"]
    assert messages[2].message["point"] == {"x": 0.4, "y": 0.5, "z": 0.6}


def quadruped_text(**cells: str) -> str:
    columns = ["%time", "field.header.stamp", "field.header.frame_id"]
    columns += [f"field.orientation.{axis}" for axis in "xyzw"]
    columns += [f"field.{v}.{axis}" for v in ("angular_velocity", "linear_acceleration") for axis in "xyz"]
    row = dict.fromkeys(columns, "0.5") | {
        "%time": "1000",
        "field.header.stamp": "900",
        "field.header.frame_id": "imu",
    }
    row |= cells
    return ",".join(row) + "\n" + ",".join(row.values()) + "\n"


def test_quadruped_has_receive_time_and_stamp():
    (message,) = recordings.quadruped(quadruped_text())
    assert message.log_time_ns == EPOCH_NS + 1000
    assert message.message["header"] == {"stamp": EPOCH_NS + 900, "frame_id": "imu"}
    assert message.message["orientation"] == {"x": 0.5, "y": 0.5, "z": 0.5, "w": 0.5}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: recordings.mower("1 2\n", ""), "Plaza1_DR.txt, line 1: 2 columns, expected 3"),
        (lambda: recordings.mower("1 0 0\n1 0 0\n", ""), "Plaza1_DR.txt, line 2: time does not advance"),
        (lambda: recordings.mower("", "1 2 0.5 3\n"), "Plaza1_TD.txt, line 1: '0.5' is not a whole number"),
        (lambda: recordings.mower("1 nan 0\n", ""), "Plaza1_DR.txt, line 1: 'nan' is not a finite number"),
        (lambda: recordings.car("a\n1 2\n", "a\n"), "KittiEquivBiasedImu.txt, line 2: 2 columns, expected 8"),
        (lambda: recordings.stairs("timestamp_s\n1\n", ""), "imu.csv, line 2: no column 'omega_x'"),
        (
            lambda: recordings.quadruped(quadruped_text(**{"field.header.stamp": "12.5"})),
            "quadraped_imu_data.csv, line 2: '12.5' is not a whole number",
        ),
    ],
)
def test_a_bad_row_is_named(make, expected):
    with pytest.raises(RecordingError, match=expected):
        make()


def test_a_changed_member_of_an_archive_is_refused(tmp_path):
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("gtsam/Data/Plaza1_DR.txt", "changed")
    with pytest.raises(prepare.PrepareError, match=r"Plaza1_DR\.txt in some\.whl has SHA-256 \w+, expected 41233e"):
        prepare.read_members(wheel, ["Plaza1_DR.txt"])
    with pytest.raises(prepare.PrepareError, match=r"no member gtsam/Data/Plaza1_TD\.txt"):
        prepare.read_members(wheel, ["Plaza1_TD.txt"])
    wheel.write_bytes(b"not a zip")
    with pytest.raises(prepare.PrepareError, match="not a whole zip file"):
        prepare.read_members(wheel, ["Plaza1_DR.txt"])


def test_no_index_is_one_line(tmp_path, monkeypatch, capfd):
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_NO_INDEX": "0",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(prepare, "CACHE", tmp_path)
    assert prepare.main(["stairs"]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("data/prepare.py: pip could not download gtsam==4.3.0")
    assert list(tmp_path.iterdir()) == []


def test_unknown_log_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        prepare.main(["boat"])
    assert stop.value.code == 2
    assert "no log is called boat; there are mower, car" in capsys.readouterr().err


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The real recordings: from data/cache, or over the network where there is one."""
    prepare.CACHE.mkdir(exist_ok=True)
    try:
        return prepare.fetch_wheel(prepare.CACHE)
    except prepare.PrepareError as error:
        pytest.skip(f"the recordings are not in data/cache and cannot be downloaded: {error}")


def test_real_stairs_end_to_end(wheel, tmp_path, capsys):
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / wheel.name).symlink_to(wheel)
    path = prepare.prepare("stairs", cache)
    streams = {"imu": StreamSpec("imu", ["angular_velocity"]), "fl": StreamSpec("foot/fl", ["point"])}
    log = read_log(path, streams)
    imu = log["imu"]
    assert imu.values.shape == (2399, 3)
    assert imu.values[0] == pytest.approx([-0.135279014707, 0.100301757455, 0.014154713601], abs=0)
    assert imu.time_ns[0] == EPOCH_NS + 13_728_619
    assert log["fl"].values.shape == (142, 3)
    # There and whole: left alone. Damaged: made again, the same.
    written = path.stat().st_mtime_ns
    prepare.prepare("stairs", cache)
    assert path.stat().st_mtime_ns == written
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    prepare.prepare("stairs", cache)
    assert path.read_bytes() == whole
    assert "making it again" in capsys.readouterr().out
    assert [p.name for p in cache.iterdir() if "partial" in p.name] == []
