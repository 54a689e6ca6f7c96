"""Make a bundle of a checkpoint.

`robopos train` writes the bundle of its best checkpoint by itself; this makes one of any other, for example
checkpoints/last.ckpt. Its scores are left empty, and standard deviations stay as trained (`robopos train` scales them
on the validation split).
"""

from __future__ import annotations

import argparse

from robopos.cli.options import add_out

HELP = "make a bundle of a checkpoint"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="file that robopos train left in checkpoints/")
    add_out(parser, "folder to write; an older bundle there is replaced", metavar="BUNDLE")


def run(args: argparse.Namespace) -> None:
    """Write the bundle."""
    from robopos.training.module import SequenceModule

    module = SequenceModule.from_checkpoint(args.checkpoint)
    print(f"bundle: {module.bundle(module.trained).save(args.out)}")
