"""Reading logs to columns against other readers, on one machine, in one run.

    python benchmarks/logs.py [--quick] [--json FILE] [--folder FOLDER]

Makes a log of 10 minutes (joint states 200 Hz, IMU 400 Hz, odometry and twist 50 Hz: 420,000 messages, zstd),
the same with lz4 and without compression, and one with camera images; reads joint states and IMU of each into
float64 columns with CRC check, without cache, on two threads; compares every value with what was generated.
The peers read the same two topics; those that are not installed are said and skipped
(`pip install 'robopos[bench]'`). Every time is the best of several whole reads in fresh processes, in turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measuring import Report, parser

from robopos.logs import LogMessage, StreamSpec, read_log, schema_text, write_log
from robopos.logs.schema import parse_schema
from robopos.logs.serialize import serialize

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow", "wrist_1", "wrist_2", "wrist_3")
START_NS = 1_700_000_000_000_000_000
IMU, JOINT, ODOMETRY, TWIST = (
    "sensor_msgs/msg/Imu",
    "sensor_msgs/msg/JointState",
    "nav_msgs/msg/Odometry",
    "geometry_msgs/msg/TwistStamped",
)
STREAMS = {
    "joints": StreamSpec("/joint_states", ["position", "velocity", "effort"]),
    "imu": StreamSpec("/imu/data", ["orientation", "angular_velocity", "linear_acceleration"]),
}


def columns(seconds: int, rate: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(stamps int64 (n,), values float64 (n, width)): smooth motion plus noise in every bit."""
    rng = np.random.default_rng(seed)
    count = seconds * rate
    stamps = START_NS + np.arange(count, dtype=np.int64) * (1_000_000_000 // rate) + rng.integers(0, 200_000, count)
    phase = np.arange(count)[:, None] / rate * rng.uniform(0.1, 2.0, width)
    return stamps, np.sin(phase) + rng.normal(0.0, 0.01, (count, width))


def payloads(
    kind: str, example: dict[str, Any], stamps: np.ndarray, places: list[tuple[int, np.ndarray]]
) -> list[bytes]:
    """Serialize one message and set stamps and numbers in copies of it; `places` are (offset, values (n, k))."""
    one = np.frombuffer(serialize(parse_schema(kind, schema_text(kind)), example), np.uint8)
    rows = np.tile(one, (len(stamps), 1))
    rows[:, 4:8] = (stamps // 1_000_000_000).astype("<i4").view(np.uint8).reshape(-1, 4)
    rows[:, 8:12] = (stamps % 1_000_000_000).astype("<u4").view(np.uint8).reshape(-1, 4)
    for offset, values in places:
        flat = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        rows[:, offset : offset + flat.shape[1]] = flat
    return [row.tobytes() for row in rows]


def marked(kind: str, example: dict[str, Any], marks: list[float]) -> list[int]:
    """Offsets at which the marker values stand in the serialized example."""
    data = serialize(parse_schema(kind, schema_text(kind)), example)
    return [data.index(np.float64(mark).tobytes()) for mark in marks]


def truth(seconds: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The generated stamps and values of the two streams that are read."""
    return {"joints": columns(seconds, 200, 18, 1), "imu": columns(seconds, 400, 10, 2)}


def messages(seconds: int, image_bytes: int) -> Iterator[LogMessage]:
    """All messages of the benchmark log in order of time."""
    header = {"frame_id": "base_link"}
    joints, imu = truth(seconds)["joints"], truth(seconds)["imu"]
    odometry, twist = columns(seconds, 50, 13, 3), columns(seconds, 50, 6, 4)
    one = {"header": header, "name": list(JOINTS)}
    one |= {name: [mark, *[0.0] * 5] for name, mark in (("position", 1.5), ("velocity", 2.5), ("effort", 3.5))}
    at = marked(JOINT, one, [1.5, 2.5, 3.5])
    streams = [("/joint_states", JOINT, joints[0], payloads(
        JOINT, one, joints[0], [(at[i], joints[1][:, 6 * i : 6 * i + 6]) for i in range(3)]
    ))]  # fmt: skip
    one = {
        "header": header,
        "orientation": {"x": 1.5},
        "angular_velocity": {"x": 2.5},
        "linear_acceleration": {"x": 3.5},
    }
    at = marked(IMU, one, [1.5, 2.5, 3.5])
    parts = [imu[1][:, :4], imu[1][:, 4:7], imu[1][:, 7:]]
    streams.append(("/imu/data", IMU, imu[0], payloads(IMU, one, imu[0], list(zip(at, parts, strict=True)))))
    one = {"header": {"frame_id": "odom"}, "child_frame_id": "base_link"}
    one |= {"pose": {"pose": {"position": {"x": 1.5}}}, "twist": {"twist": {"linear": {"x": 2.5}}}}
    at = marked(ODOMETRY, one, [1.5, 2.5])
    parts = [odometry[1][:, :7], odometry[1][:, 7:]]
    streams.append(
        ("/odom", ODOMETRY, odometry[0], payloads(ODOMETRY, one, odometry[0], list(zip(at, parts, strict=True))))
    )
    one = {"header": header, "twist": {"linear": {"x": 1.5}}}
    streams.append(
        ("/twist", TWIST, twist[0], payloads(TWIST, one, twist[0], [(marked(TWIST, one, [1.5])[0], twist[1])]))
    )
    if image_bytes:
        streams.append(images(seconds, image_bytes))
    stamps = np.concatenate([stream[2] for stream in streams])
    owner = np.concatenate([np.full(len(stream[2]), number) for number, stream in enumerate(streams)])
    place = np.concatenate([np.arange(len(stream[2])) for stream in streams])
    for number in np.argsort(stamps, kind="stable"):
        topic, kind, times, data = streams[owner[number]]
        index = place[number]
        yield LogMessage(topic, kind, int(times[index]), data[index % len(data)])


def images(seconds: int, size: int) -> tuple[str, str, np.ndarray, list[bytes]]:
    """Camera images at 10 Hz whose bytes hardly compress; ten of them are repeated."""
    rng = np.random.default_rng(5)
    kind = "sensor_msgs/msg/CompressedImage"
    stamps = START_NS + np.arange(seconds * 10, dtype=np.int64) * 100_000_000
    data = [
        serialize(parse_schema(kind, schema_text(kind)), {"format": "jpeg", "data": rng.bytes(size)}) for _ in range(10)
    ]
    return "/camera/compressed", kind, stamps, data


# --- the readers: each reads joint states and IMU of one file into float64 columns, and returns them ---

SLOW_S = 2.0
TOPICS = ("/joint_states", "/imu/data")
JOINT_FIELDS = ("position", "velocity", "effort")
IMU_FIELDS = tuple(
    f"{vector}.{axis}"
    for vector, axes in (("orientation", "xyzw"), ("angular_velocity", "xyz"), ("linear_acceleration", "xyz"))
    for axis in axes
)
Read = tuple[np.ndarray, np.ndarray]


def read_robopos(path: str) -> Read:
    """This package, without cache."""
    log = read_log(path, STREAMS, cache=False, workers=2)
    return log["joints"].values, log["imu"].values


def read_cached(path: str) -> Read:
    """This package, through the cache that an earlier read has filled."""
    log = read_log(path, STREAMS, cache=True, workers=2)
    return log["joints"].values, log["imu"].values


def read_decompress(path: str) -> None:
    """Only unpack the chunks, on two threads: the floor of every reader that shares the work so."""
    from concurrent.futures import ThreadPoolExecutor

    from robopos.logs.source import Source

    parts = [part._replace(block=part.block._replace(crc=0)) for part in Source(path).parts]
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda part: len(part.open()), parts):
            pass


def read_baglab(path: str) -> Read:
    """baglab's C++ backend: both topics in one pass, only the asked fields."""
    import baglab_mcap_backend

    fields = {TOPICS[0]: list(JOINT_FIELDS), TOPICS[1]: list(IMU_FIELDS)}
    raw = baglab_mcap_backend.BagReader(path).read_topics(list(TOPICS), fields)
    joints = np.hstack([np.array(raw[TOPICS[0]][name]) for name in JOINT_FIELDS])
    return joints, np.stack([raw[TOPICS[1]][name] for name in IMU_FIELDS], axis=1)


def read_roboto(path: str) -> Read:
    """roboto-mcap-codec to Arrow batches, only the asked fields."""
    import mcap_codec
    import pyarrow as pa

    size = os.path.getsize(path)

    def columns_of(topic: str, include: list[list[str]]) -> pa.Table:
        with open(path, "rb") as stream:

            def read_bytes(offset: int, length: int) -> bytes:
                stream.seek(offset)
                return stream.read(length)

            cursor = mcap_codec.open_mcap_file(
                read_bytes,
                size,
                timestamp=mcap_codec.TimestampSource("message_log_time"),
                projection=mcap_codec.Projection(include=include),
                channel=mcap_codec.TopicName(topic),
            )
            return pa.Table.from_batches(list(cursor))

    table = columns_of(TOPICS[0], [[name] for name in JOINT_FIELDS])
    joints = np.hstack(
        [table[name].combine_chunks().flatten().to_numpy().reshape(table.num_rows, -1) for name in JOINT_FIELDS]
    )
    table = columns_of(TOPICS[1], [name.split(".") for name in IMU_FIELDS])
    parts = {name.split(".")[0]: table[name.split(".")[0]].combine_chunks() for name in IMU_FIELDS}
    fields = [parts[vector].field(axis).to_numpy() for vector, axis in (name.split(".") for name in IMU_FIELDS)]
    return joints, np.stack(fields, axis=1)


def row_of_imu(message: Any) -> tuple[float, ...]:
    """The ten numbers of one decoded IMU message."""
    q, w, a = message.orientation, message.angular_velocity, message.linear_acceleration
    return q.x, q.y, q.z, q.w, w.x, w.y, w.z, a.x, a.y, a.z


def from_objects(pairs: Iterator[tuple[str, Any]]) -> Read:
    """Columns out of (topic, decoded message)."""
    joints, imu = [], []
    for topic, message in pairs:
        if topic == TOPICS[0]:
            joints.append(np.concatenate((message.position, message.velocity, message.effort)))
        else:
            imu.append(row_of_imu(message))
    return np.array(joints, np.float64), np.array(imu, np.float64)


def read_rosbags(path: str) -> Read:
    """rosbags' AnyReader, message by message."""
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    with AnyReader([Path(path)], default_typestore=get_typestore(Stores.ROS2_HUMBLE)) as reader:
        wanted = [connection for connection in reader.connections if connection.topic in TOPICS]
        return from_objects(
            (connection.topic, reader.deserialize(raw, connection.msgtype))
            for connection, _, raw in reader.messages(connections=wanted)
        )


def read_pybag(path: str) -> Read:
    """pybag-sdk, message by message."""
    from pybag.mcap_reader import McapFileReader

    with McapFileReader.from_file(path) as reader:
        joints = [np.concatenate((m.data.position, m.data.velocity, m.data.effort)) for m in reader.messages(TOPICS[0])]
        imu = [row_of_imu(m.data) for m in reader.messages(TOPICS[1])]
    return np.array(joints), np.array(imu)


def read_mcap_ros2(path: str) -> Read:
    """mcap with mcap-ros2-support, message by message."""
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    with open(path, "rb") as stream:
        reader = make_reader(stream, validate_crcs=True, decoder_factories=[DecoderFactory()])
        return from_objects((item[1].topic, item[3]) for item in reader.iter_decoded_messages(topics=list(TOPICS)))


def read_mcap_ros2_fast(path: str) -> Read:
    """mcap with mcap-ros2-support-fast, message by message."""
    from mcap.reader import make_reader
    from mcap_ros2_support_fast.decoder import DecoderFactory

    with open(path, "rb") as stream:
        reader = make_reader(stream, validate_crcs=True, decoder_factories=[DecoderFactory()])
        return from_objects((item[1].topic, item[3]) for item in reader.iter_decoded_messages(topics=list(TOPICS)))


class Peer(NamedTuple):
    """A reader, the module that it needs, and how many times faster we want to be on the main file."""

    read: Callable[[str], Any]
    module: str
    target: float | None


PEERS = {
    "decompression alone": Peer(read_decompress, "robopos", None),
    "robopos": Peer(read_robopos, "robopos", None),
    "baglab C++": Peer(read_baglab, "baglab_mcap_backend", 3.0),
    "roboto-mcap-codec": Peer(read_roboto, "mcap_codec", 10.0),
    "rosbags": Peer(read_rosbags, "rosbags", 30.0),
    "pybag-sdk": Peer(read_pybag, "pybag", None),
    "mcap-ros2-support": Peer(read_mcap_ros2, "mcap_ros2", 60.0),
    "mcap-ros2-support-fast": Peer(read_mcap_ros2_fast, "mcap_ros2_support_fast", None),
}
READERS = {name: peer.read for name, peer in PEERS.items()} | {"robopos cached": read_cached}


def anonymous_bytes() -> int:
    """Anonymous resident memory of this process (mapped files do not count)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def measure_here(name: str, path: str, seconds: int) -> None:
    """Read once in this process and print wall time, CPU time, peak of anonymous memory and correctness."""
    import threading

    read = READERS[name]
    peak, stop, before = [0], threading.Event(), anonymous_bytes()

    def watch() -> None:
        while not stop.wait(0.02):
            peak[0] = max(peak[0], anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    cpu, wall = time.process_time(), time.perf_counter()
    result = read(path)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak[0] = max(peak[0], anonymous_bytes())
    stop.set()
    watcher.join()
    record = {"wall": wall, "cpu": cpu, "anonymous": peak[0] - before, "equal": None, "columns": 0}
    if result is not None:
        want = truth(seconds)
        record["equal"] = all(
            got.shape == want[key][1].shape and np.ascontiguousarray(got).tobytes() == want[key][1].tobytes()
            for key, got in zip(("joints", "imu"), result, strict=True)
        )
        record["columns"] = sum(part.nbytes for part in result)
    print(json.dumps(record))


def measure(names: list[str], path: Path, seconds: int, repeats: int) -> dict[str, dict[str, Any]]:
    """The fastest of several reads of each reader, every one in a fresh process, with the file in the page cache.

    The readers take turns, so that a load from elsewhere meets them all; the slow ones take two turns.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(repeats):
        for name in names:
            if turn > 1 and runs[name][0]["wall"] > SLOW_S:
                continue
            command = [sys.executable, __file__, "--one", name, "--file", str(path), "--seconds", str(seconds)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            if done.returncode:
                raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
            runs[name].append(json.loads(done.stdout.splitlines()[-1]))
    return {
        name: min(taken, key=lambda run: run["wall"]) | {"cpu": min(run["cpu"] for run in taken)}
        for name, taken in runs.items()
    }


def make(path: Path, seconds: int, compression: str, image_bytes: int) -> Path:
    """Write one of the benchmark's logs, once."""
    if not path.exists():
        print(f"making {path.name} ...", flush=True)
        write_log(path, messages(seconds, image_bytes), compression=compression)
        path.read_bytes()
    return path


def compare(report: Report, label: str, path: Path, seconds: int, repeats: int, names: list[str]) -> None:
    """Measure ours and the peers on one file."""
    there = [name for name in names if importlib.util.find_spec(PEERS[name].module) is not None]
    for name in names:
        if name not in there:
            print(f"{label}: {name} is not installed: skipped (pip install 'robopos[bench]')")
    found = measure(there, path, seconds, repeats)
    for name, run in found.items():
        report.add(f"{label}: {name}, wall", run["wall"], "s")
        report.add(f"{label}: {name}, CPU", run["cpu"], "s")
        if run["equal"] is False:
            print(f"{label}: {name} gives other values than were generated")
    ours = found["robopos"]
    report.add(f"{label}: values equal to the generated ones", float(ours["equal"]), at_least=1)
    extra = (ours["anonymous"] - ours["columns"]) / 1e6
    report.add(f"{label}: anonymous memory beyond the columns", extra, "MB", at_most=200)
    floor = ours["wall"] / found["decompression alone"]["wall"]
    report.add(f"{label}: ours / decompression alone", floor, "x", at_most=4 if label == "zstd" else None)
    for name, run in found.items():
        if name in ("robopos", "decompression alone"):
            continue
        target = {"images": 1.2 if name == "baglab C++" else None, "zstd": PEERS[name].target}.get(label)
        ratio = run["wall"] / ours["wall"]
        report.add(f"{label}: {name} / ours", ratio, "x", at_least=target)
        report.add(f"{label}: {name} / ours, CPU", run["cpu"] / ours["cpu"], "x")


def main() -> None:
    options = parser(__doc__, "one minute instead of ten, the main file only")
    options.add_argument("--folder", help="where the logs are made and kept (default: a temporary folder)")
    for hidden in ("--one", "--file", "--seconds"):
        options.add_argument(hidden, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one:
        measure_here(args.one, args.file, int(args.seconds))
        return
    seconds, repeats = (60, 3) if args.quick else (600, 7)
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["ROBOPOS_CACHE"] = str(folder / "cache")
        main_file = make(folder / f"main-{seconds}.mcap", seconds, "zstd", 0)
        compare(report, "zstd", main_file, seconds, repeats, list(PEERS))
        measure(["robopos cached"], main_file, seconds, 1)  # fills the cache
        cached = measure(["robopos cached"], main_file, seconds, repeats)["robopos cached"]
        first = next(figure.value for figure in report.figures if figure.name == "zstd: robopos, wall")
        report.add("zstd: through the cache, wall", cached["wall"], "s")
        share = cached["wall"] / first
        report.add("zstd: through the cache / first read", share, "x", at_most=0.2)
        report.add("zstd: through the cache, values equal to the generated ones", float(cached["equal"]), at_least=1)
        if not args.quick:
            few = ["decompression alone", "robopos", "baglab C++"]
            compare(report, "lz4", make(folder / "lz4.mcap", seconds, "lz4", 0), seconds, repeats, few)
            compare(report, "none", make(folder / "none.mcap", seconds, "none", 0), seconds, repeats, few)
            compare(report, "images", make(folder / "images.mcap", seconds, "zstd", 60_000), seconds, repeats, few)
    if args.json:
        report.write_json(args.json)


if __name__ == "__main__":
    main()
