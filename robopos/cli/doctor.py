"""Say what is found here: Python, torch and its devices, ROS 2 and its middleware, robopos_ros; and what to do about
what is missing. The exit code is 1 when robopos itself cannot work; without ROS 2 it can.
"""

from __future__ import annotations

import argparse

from robopos.cli.options import add_json

HELP = "what is installed here, and what is missing"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_json(parser, "the findings")


def run(args: argparse.Namespace) -> None:
    """Print the findings."""
    from robopos.cli.findings import examine
    from robopos.cli.show import write_json
    from robopos.errors import RoboposError

    findings = examine()
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        print(f"{finding.state:<8} {finding.what:<{width}}  {finding.said}")
        if finding.remedy:
            print(f"{'':<8} {'':<{width}}  -> {finding.remedy}")
    write_json(args.json, [finding._asdict() for finding in findings])
    broken = [finding.what for finding in findings if finding.state == "broken"]
    if broken:
        raise RoboposError(f"robopos cannot work here: {', '.join(broken)}")
