"""Publishes a log's messages, byte for byte, on their topics and with their timing.

    robopos play LOG --rate 2 --loop 0 --clock

No rosbag2 is needed. Topics whose type is not installed are left out and named. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from robopos.errors import RoboposError, ServingError
from robopos.logs import iter_messages
from robopos_ros.process import check_domain
from robopos_ros.signals import stop_on_signals

LEAST = {"rate": 0.001, "loop": 0, "last_s": 0, "clock": 0.001, "patience_s": 0.001, "wait_s": 0}


def build_parser() -> argparse.ArgumentParser:
    """The options of `robopos play`."""
    parser = argparse.ArgumentParser(
        prog="robopos play", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", type=Path, metavar="LOG", help="MCAP file or rosbag2 folder of ROS 2 messages (cdr)")
    parser.add_argument("--topics", nargs="+", metavar="TOPIC", help="these alone (default: all that can be published)")
    parser.add_argument("--rate", type=float, default=1.0, metavar="R", help="R times as fast as recorded (default: 1)")
    parser.add_argument("--loop", type=int, default=1, metavar="N", help="play it N times; 0 without end (default: 1)")
    parser.add_argument("--last-s", type=float, metavar="S", help="only the last S seconds of the log (default: all)")
    parser.add_argument("--namespace", default="", metavar="NS", help="before each topic (default: none)")
    parser.add_argument(
        "--clock",
        nargs="?",
        type=float,
        const=100.0,
        metavar="HZ",
        help="publish the log's time on /clock, so often per second of it, and before each message (default: 100)",
    )
    parser.add_argument(
        "--lock-step",
        metavar="TOPIC",
        nargs="?",
        const="/predictor/prediction",
        help="as fast as answers come: each message after the predictions that answer the one before, which come "
        "on JointTrajectory topics below TOPIC (default: /predictor/prediction)",
    )
    parser.add_argument(
        "--patience-s",
        type=float,
        default=0.5,
        metavar="S",
        help="seconds for an answer in lock-step; a message without one is counted and left behind (default: 0.5)",
    )
    parser.add_argument(
        "--wait-s",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds for somebody to subscribe, before the first message (default: 10)",
    )
    return parser


def check(args: argparse.Namespace) -> None:
    """Raises ServingError for options that make no sense."""
    for name, least in LEAST.items():
        value = getattr(args, name)
        if value is not None and not value >= least:  # not a number is never
            raise ServingError(f"--{name.replace('_', '-')} is {value:g}, must be >= {least:g}")
    if args.lock_step and args.rate != 1.0:
        raise ServingError("--lock-step goes as fast as the answers come: leave out --rate")


def play(args: argparse.Namespace, stop: threading.Event) -> str:
    """Play until the end or `stop`; what was done, in words."""
    from robopos_ros.player import Player

    check(args)
    check_domain()
    messages = list(iter_messages(args.log))
    missing: set[str] = set()
    if args.topics is not None:
        topics = {topic.strip("/") for topic in args.topics}
        missing = topics - {message.topic.strip("/") for message in messages}
        messages = [message for message in messages if message.topic.strip("/") in topics]
    if args.last_s is not None and messages:
        end_ns = messages[-1].log_time_ns
        messages = [message for message in messages if end_ns - message.log_time_ns <= args.last_s * 1e9]
    with Player(messages, args.namespace, args.clock, args.lock_step) as player:
        for line in player.left_out:
            say(f"left out: {line}")
        if not player.messages:
            raise ServingError(f"{args.log}: no message to play")
        for topic in sorted(missing):
            say(f"left out: /{topic}: the log has no message of it")
        if not player.wait_for_subscriber(args.wait_s, stop) and not stop.is_set():
            say(f"nobody subscribed within {args.wait_s:g} s; playing all the same")
        rounds = 0
        while not stop.is_set() and (args.loop == 0 or rounds < args.loop):
            if args.lock_step:
                player.lock_step(args.patience_s, stop, say)
            else:
                player.paced(args.rate, stop)
            rounds += 1
        player.drain()
        done = f"{player.published} messages on {len(player.topics)} topics, {rounds} times round"
        if args.lock_step:
            return f"{done}; {player.answered} answered, {player.published - player.answered} not"
        return f"{done}; at most {1e3 * player.latest_s:.1f} ms late"


def say(line: str) -> None:
    """Tell beside the result."""
    print(f"robopos play: {line}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when it was played or stopped, 1 for a named error."""
    stop = stop_on_signals()
    given = list(sys.argv[1:] if argv is None else argv)
    if "--ros-args" in given:  # a launch system adds them to every node; the player has no use for any
        given = given[: given.index("--ros-args")]
    args = build_parser().parse_args(given)
    try:
        print(play(args, stop), flush=True)
    except RoboposError as error:
        say(str(error))
        return 1
    except ImportError as error:
        say(
            f"ROS 2 for Python is missing ({error}): install robopos[ros], or source the set-up of a ROS 2 installation"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
