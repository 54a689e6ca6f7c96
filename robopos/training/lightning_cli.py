"""`robopos train`: a LightningCLI over the module and the data module, then a bundle."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lightning import Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from robopos.errors import ConfigError, UsageError
from robopos.model import Bundle
from robopos.settings import require
from robopos.training.band import band_notes
from robopos.training.calibration import calibrate
from robopos.training.data import SequenceData
from robopos.training.evaluation import predict, score
from robopos.training.fit import LastValidation, StepProgress, TellStep, interrupts, quiet
from robopos.training.module import SequenceModule, read_checkpoint
from robopos.training.parser import ConfigFile, TrainingParser
from robopos.training.resume import keep_rows, refuse_another_training, refuse_replacing, remove_training

BEST, LAST = "best", "last"
# Groups of settings, and where `robopos train` has them.
ABOVE = {"network": "model", "split": "data", "augment": "data"}


def _is_trainer(group: Any) -> bool:
    return any(action.dest.split(".")[0] == "trainer" for action in group._group_actions)


class TrainingCLI(LightningCLI):
    """Parser, modules and trainer."""

    def __init__(self, args: list[str]) -> None:
        super().__init__(
            SequenceModule,
            SequenceData,
            args=args,
            run=False,
            seed_everything_default=1,
            auto_configure_optimizers=False,
            save_config_kwargs={"overwrite": True},
            trainer_defaults={
                "max_steps": 1000,
                "max_epochs": -1,
                "gradient_clip_val": 1.0,
                "num_sanity_val_steps": 0,
                "enable_model_summary": False,
                "enable_progress_bar": False,  # the command shows its own
                "log_every_n_steps": 20,
            },
        )

    def init_parser(self, **kwargs: Any) -> LightningArgumentParser:
        told = "Train a model on recorded logs and write a bundle."
        parser = TrainingParser(prog="robopos train", description=told, default_env=False)
        parser.add_argument(
            "-c", "--config", action=ConfigFile, metavar="CONFIG", help="YAML configuration; later options override it"
        )
        return parser

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        super().add_core_arguments_to_parser(parser)
        for action in parser._actions:
            # Marks of the Trainer's pages: :class:`~lightning.pytorch.trainer.Trainer` says Trainer.
            if isinstance(action.help, str):
                action.help = re.sub(r":\w+:`~?(?:[^`]*\.)?([^`.]*)`", r"\1", action.help)
        # The project's own options first; the Trainer's many after them.
        parser._action_groups.sort(key=_is_trainer)  # type: ignore[attr-defined]  # argparse has lists
        parser._actions.sort(key=lambda action: action.dest.split(".")[0] == "trainer")

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument(
            *("-o", "--out"),
            type=str,
            default="runs/train",
            metavar="FOLDER",
            help="folder for the bundle, checkpoints and logs",
        )
        parser.add_argument(
            "--ckpt_path",
            type=str,
            default=None,
            metavar="CHECKPOINT",
            help="resume from this checkpoint; 'last' takes the newest of --out",
        )
        parser.add_argument("--force", action="store_true", help="replace a training that --out holds")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        super().parse_arguments(parser, args)
        seed = self.config.seed_everything
        require(0 <= seed < 2**32, "seed_everything", seed, "a whole number from 0 to 4294967295")

    def before_instantiate_classes(self) -> None:
        # What holds for this call alone is not part of the configuration that is saved.
        self.force, self.config.force = self.config.force, False
        self.ckpt_path, self.config.ckpt_path = self.config.ckpt_path, None

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        out = Path(self.config.out)
        trainer = self.config_init.trainer
        trainer.default_root_dir = str(out)
        # CSV and TensorBoard always; loggers of the configuration (W&B, MLflow, ...) come beside them.
        own = trainer.logger if isinstance(trainer.logger, list) else [trainer.logger]
        # Written row by row: whole when a training is killed.
        self.csv = CSVLogger(out, name="csv", version="", flush_logs_every_n_steps=1)
        kwargs["logger"] = [
            self.csv,
            TensorBoardLogger(out, name="tensorboard", version=""),
            *(logger for logger in own if logger not in (None, True, False)),
        ]
        # Adds to the user's own callbacks.
        trainer.callbacks = [
            *(trainer.callbacks or []),
            *(
                ModelCheckpoint(
                    dirpath=out / "checkpoints", filename=name, monitor=monitor, enable_version_counter=False
                )
                # Its own option for the last one writes it only together with a best one.
                for name, monitor in ((BEST, "val_loss"), (LAST, None))
            ),
        ]
        for callback in trainer.callbacks:
            if isinstance(callback, EarlyStopping) and callback._check_on_train_epoch_end is None:
                # After validation. At the end of an epoch, a resumed training has not validated yet.
                callback._check_on_train_epoch_end = False
        try:
            return super().instantiate_trainer(**kwargs)
        except (MisconfigurationException, ValueError) as error:
            told = " ".join(str(error).split())
            where = f" (accelerator is {trainer.accelerator!r}, cpu and auto always work)" if "accel" in told else ""
            raise ConfigError(f"trainer: {told}{where}") from None


def settings_parser() -> LightningArgumentParser:
    """The parser of `robopos train`, without a training."""

    class Built(Exception):
        pass

    class ParserAlone(TrainingCLI):
        def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
            raise Built(parser)

    try:
        ParserAlone([])
    except Built as built:
        parser: LightningArgumentParser = built.args[0]
        return parser
    raise AssertionError("LightningCLI parses when it is made")


def in_full(error: ConfigError) -> ConfigError:
    """The error with its setting's name as it is typed here: settings know their own group alone."""
    text = str(error)
    for group, above in ABOVE.items():
        # After the name of a file, where there is one.
        text = re.sub(rf"(^|: ){group}\.", rf"\g<1>{above}.{group}.", text, count=1)
    return type(error)(text) if type(error) in (ConfigError, UsageError) else error


class TrainingRun:
    """One training as the command line asks for it.

    Raises:
        RoboposError: a wrong option, log or setting, by name.
    """

    def __init__(self, args: list[str]) -> None:
        quiet()
        try:
            self._cli = TrainingCLI(args)
        except ConfigError as error:
            raise in_full(error) from None
        self.out = Path(self._cli.config.out)
        self._resume: str | None = self._cli.ckpt_path
        if self._resume == "last":
            self._resume = str(self.out / "checkpoints" / "last.ckpt")
        if self._resume is not None and not Path(self._resume).is_file():
            raise ConfigError(f"ckpt_path: {self._resume} is not there")
        if self._resume is not None:
            # Read here first: torch before 2.6 would run what a foreign file tells it to.
            checkpoint = read_checkpoint(self._resume)
        elif not self._cli.force:
            refuse_replacing(self.out)
        trainer, data = self._cli.trainer, self._cli.datamodule
        endless = trainer.max_steps == -1 and trainer.max_epochs is not None and trainer.max_epochs < 1
        allowed = "a number of steps >= 1, or -1 with trainer.max_epochs >= 1"
        require(trainer.max_steps != 0 and not endless, "trainer.max_steps", trainer.max_steps, allowed)
        for name in ("accumulate_grad_batches", "check_val_every_n_epoch"):
            value = getattr(trainer, name)
            require(value is None or value >= 1, f"trainer.{name}", value, "a whole number >= 1")
        # A training shorter than an epoch is validated once all the same.
        data.batches_per_epoch = min(data.batches_per_epoch, self.steps)
        data.setup("fit")
        self._cli.model.prepare(data)
        if self._resume is not None:
            self._resumed_step = refuse_another_training(self._resume, checkpoint, self._cli.model, data)

    @property
    def steps(self) -> int:
        """Steps of the whole training."""
        trainer = self._cli.trainer
        if trainer.max_steps > 0:
            return int(trainer.max_steps)
        data: SequenceData = self._cli.datamodule
        return int(trainer.max_epochs or 1) * data.batches_per_epoch

    @property
    def notes(self) -> list[str]:
        """What had to be said about the logs, and about the network's band on them."""
        data: SequenceData = self._cli.datamodule
        return [*data.notes, *band_notes(data.dataset, self._cli.model.settings)]

    def summary(self) -> str:
        """What is about to be trained, in a line."""
        data, settings = self._cli.datamodule, self._cli.model.settings
        tokens = data.describe()["tokens"]
        parameters = sum(p.numel() for p in self._cli.model.network.parameters())
        return (
            f"{', '.join(data.logs)}: {sum(tokens.values())} messages read in {data.read_s:.1f} s "
            f"({', '.join(f'{split} {count}' for split, count in tokens.items())}); "
            f"{settings.size} model of {parameters:,} parameters, positions {settings.positions}"
        )

    def fit(self, tell: TellStep) -> Bundle:
        """Train, then judge the best checkpoint on the test split.

        Args:
            tell: is told the step and the latest losses.
        """
        trainer, data = self._cli.trainer, self._cli.datamodule
        trainer.callbacks += [StepProgress(tell), LastValidation()]  # type: ignore[attr-defined]  # made by a part of it
        if self._resume is None:
            remove_training(self.out)
        else:
            keep_rows(self._cli.csv, self._resumed_step)
        try:
            with interrupts():
                trainer.fit(self._cli.model, datamodule=data, ckpt_path=self._resume)
        except KeyboardInterrupt as interrupt:
            last = self.out / "checkpoints" / "last.ckpt"
            goes_on = f"--ckpt_path last with the same options goes on from {last}"
            said = goes_on if last.is_file() else "before the first checkpoint"
            raise KeyboardInterrupt(said) from interrupt
        except MisconfigurationException as error:
            raise ConfigError(f"trainer: {' '.join(str(error).split())}") from None
        best = getattr(trainer.checkpoint_callback, "best_model_path", "")
        module = SequenceModule.from_checkpoint(best) if best else self._cli.model
        training = data.describe() | {
            "steps": int(module.trained["steps"] if best else trainer.global_step),
            "batch_size": data.batch_size,
            "weights_seed": self._cli.config.seed_everything,
        }
        bundle = calibrate(module.bundle(training), data.dataset)
        return module.bundle(training, score(bundle.layout, predict(bundle, data.dataset, "test")))

    def save(self, bundle: Bundle) -> Path:
        """Write the bundle into the output folder."""
        return bundle.save(self.out / "bundle")
