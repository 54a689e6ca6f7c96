"""Publish a log's messages on ROS 2 topics, byte for byte and with their timing; no rosbag2 is needed.

`robopos play --help` tells the options: rate, loop, /clock, lock-step with a node.
"""

from __future__ import annotations

import argparse

from robopos.cli.options import HANDS_ON

HELP = "publish a log on ROS 2 topics"
PARSER_OPTIONS = HANDS_ON  # to robopos_ros.play, --debug too, which it does not know


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="LOG and options; see --help")


def run(args: argparse.Namespace) -> None:
    """Let the player take this process over."""
    from robopos.cli.ros_module import run_module

    run_module("robopos_ros.play", args.arguments)
