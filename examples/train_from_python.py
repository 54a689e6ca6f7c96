"""Train from Python: Lightning modules for model and data, then scores and a bundle.

The model tells the joints' angles 0.1 and 0.3 s ahead from joint states, IMU and commands. Printed is its error beside
that of holding the last value; the bundle lies in runs/examples/bundle, for `robopos replay`, `serve` and the examples
live_engine.py and write_predictions.py. `robopos train` does the same from a YAML file, with checkpoints and curves.
"""

from __future__ import annotations

from pathlib import Path

from sample_log import messages

from robopos.logs import write_log
from robopos.model import Bundle, ModelSettings
from robopos.sequences import SequenceSettings, SplitSettings, StreamSettings
from robopos.training import predict, score
from robopos.training.data import SequenceData
from robopos.training.fit import fit
from robopos.training.module import OptimizerSettings, SequenceModule

OUT = Path("runs/examples")
SEQUENCE = SequenceSettings(
    streams={
        "joints": StreamSettings("/joint_states", ["position", "velocity"]),
        "imu": StreamSettings("/imu", ["angular_velocity.z"]),
        "command": StreamSettings("/command", ["data"]),  # no header: its time is when it was recorded
    },
    targets={"joints": ["position"]},
    horizons_s=[0.1, 0.3],
    max_gap_s=1.0,
)


def train(log: Path, steps: int = 150) -> Bundle:
    """A bundle trained on the first 70 % of a log, with its scores on the last 15 %."""
    data = SequenceData([str(log)], SEQUENCE, SplitSettings(validation=0.15, test=0.15), batch_size=8)
    network = ModelSettings(positions="time-rotary", size="tiny", context=32, context_s=0.5, window=64)
    module = SequenceModule(network, OptimizerSettings(learning_rate=4e-3, warmup_steps=20))
    fit(module, data, max_steps=steps, seed=1)  # or a Trainer of your own: Trainer(...).fit(module, datamodule=data)

    bundle = module.bundle(training=data.describe() | {"steps": steps})
    scores = score(bundle.layout, predict(bundle, data.dataset, "test"))
    return module.bundle(bundle.training, scores)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    bundle = train(write_log(OUT / "arm.mcap", messages(seconds=60)))
    for row in bundle.metrics:
        print(
            f"{row['target']} {row['horizon_s']:g} s ahead: RMSE {row['rmse']:.4f}, "
            f"holding the last value {row['rmse_hold_last']:.4f}, skill {row['skill_hold_last']:.2f}"
        )
    print(f"bundle: {bundle.save(OUT / 'bundle')}")


if __name__ == "__main__":
    main()
