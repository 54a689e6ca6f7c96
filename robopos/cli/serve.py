"""Serve a bundle on ROS 2: the lifecycle node `predictor` of robopos_ros, in this process's place.

It reads the bundle's topics and publishes JointTrajectory on /predictor/prediction/<stream>; Ctrl-C or SIGTERM
ends it cleanly.
"""

from __future__ import annotations

import argparse

from robopos.cli.options import add_bundle

HELP = "serve a bundle on ROS 2"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_bundle(parser)
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="where it computes: auto (CUDA where it is), cpu, cuda, cuda:1 (default: the parameter `device`, "
        "which is auto where no file sets it)",
    )
    parser.add_argument("--namespace", metavar="NS", help="namespace of the node and of its topics (default: none)")
    parser.add_argument("--params-file", metavar="FILE", help="ROS parameters, such as configs/ros/predictor.yaml")
    parser.add_argument(
        "-p",
        "--param",
        action="append",
        default=[],
        metavar="NAME:=VALUE",
        help="one ROS parameter of the node; may be repeated",
    )
    parser.add_argument(
        "-r",
        "--remap",
        action="append",
        default=[],
        metavar="FROM:=TO",
        help="another name for a topic; may be repeated",
    )


def run(args: argparse.Namespace) -> None:
    """Let the node take this process over."""
    import json
    from pathlib import Path

    from robopos.cli.ros_module import run_module
    from robopos.errors import BundleError, ConfigError

    bundle = Path(args.bundle).resolve()
    if not (bundle / "bundle.yaml").is_file():
        raise BundleError(f"{args.bundle}: no bundle there (bundle.yaml is missing)")
    if args.params_file is not None and not Path(args.params_file).is_file():
        raise ConfigError(f"--params-file {args.params_file}: no such file")
    for option, pairs in (("--param", args.param), ("--remap", args.remap)):
        for pair in pairs:
            if ":=" not in pair:
                raise ConfigError(f"{option} {pair}: write NAME:=VALUE")
    # ROS reads values as YAML, of which JSON is a part: quoted, so that a folder called "1" stays text.
    arguments = [] if args.params_file is None else ["--params-file", args.params_file]
    arguments += ["-p", f"bundle:={json.dumps(str(bundle))}"]
    if args.device is not None:
        arguments += ["-p", f"device:={json.dumps(args.device)}"]
    if args.namespace is not None:
        arguments += ["-r", f"__ns:=/{args.namespace.strip('/')}"]
    for flag, pairs in (("-p", args.param), ("-r", args.remap)):
        for pair in pairs:
            arguments += [flag, pair]
    run_module("robopos_ros", ["--ros-args", *arguments])
