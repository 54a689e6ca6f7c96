"""Make a bundle of a checkpoint.

`robopos train` writes the bundle of its best checkpoint by itself; this makes one of any other, for example
checkpoints/last.ckpt. Its scores are left empty, and standard deviations stay as trained (`robopos train` scales them
on the validation split).
"""

from __future__ import annotations

import argparse

HELP = "make a bundle of a checkpoint"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CKPT", help="checkpoint file of robopos train")
    parser.add_argument("-o", "--out", required=True, metavar="BUNDLE", help="folder to write")


def run(args: argparse.Namespace) -> None:
    from robopos.training.module import SequenceModule

    module = SequenceModule.from_checkpoint(args.checkpoint)
    print(f"bundle: {module.bundle(module.trained).save(args.out)}")
