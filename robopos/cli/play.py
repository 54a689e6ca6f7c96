"""Publish a log's messages on ROS 2 topics, byte for byte and with their timing; no rosbag2 is needed.

`robopos play --help` tells the options: rate, loop, /clock, lock-step with a node.
"""

from __future__ import annotations

import argparse

HELP = "publish a log on ROS 2 topics"
# Everything after `play` goes to robopos_ros.play, --help too.
PARSER_OPTIONS = {"add_help": False, "prefix_chars": "\0"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> None:
    from robopos.cli.ros_module import run_module

    run_module("robopos_ros.play", args.arguments)
