"""Write predictions as MCAP for Foxglove: measured and expected joint states on one time axis.

Each expected state is a JointState on /expected/joint_states at the time that it is about (the reference time and the
horizon), so that in a Plot panel `/joint_states.position[0]` and `/expected/joint_states.position[0]` lie upon each
other where the model is right. `robopos replay` writes all horizons, as trajectories at the time they were made.
The log is runs/examples/expected.mcap; the bundle that of train_from_python.py, made first where it is missing.
"""

from __future__ import annotations

import train_from_python
from sample_log import messages

from robopos.logs import LogMessage, write_log
from robopos.serving import Engine, replay

OUT = train_from_python.OUT
HORIZON = 1  # the second of the bundle's horizons


def main() -> None:
    bundle = OUT / "bundle"
    if not bundle.is_dir():
        train_from_python.main()
    engine = Engine.load(bundle)
    log = write_log(OUT / "other.mcap", messages(seconds=20, seed=7))

    names = [name.split("[")[1].rstrip("]") for name in engine.bundle.layout.target_names]  # joints.position[elbow]
    measured, expected = [], []
    for step in replay(engine, log):  # the log's messages in order, each with the prediction after it
        raw = step.message
        measured.append(LogMessage(raw.topic, raw.type, raw.log_time_ns, raw.data, schema=raw.schema))
        if step.prediction is not None and raw.topic == "/joint_states":
            due_ns = step.prediction.time_ns + round(step.prediction.horizons_s[HORIZON] * 1e9)
            content = {
                "header": {"stamp": due_ns, "frame_id": "expected"},
                "name": names,
                "position": step.prediction.values[HORIZON],
            }
            expected.append(LogMessage("/expected/joint_states", "sensor_msgs/msg/JointState", due_ns, content))

    path = write_log(OUT / "expected.mcap", sorted([*measured, *expected], key=lambda message: message.log_time_ns))
    horizon_s = engine.bundle.layout.horizons_s[HORIZON]
    print(f"{path}: {len(measured)} messages of the log, {len(expected)} states expected {horizon_s:g} s before")


if __name__ == "__main__":
    main()
