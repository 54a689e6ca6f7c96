"""What a log holds and how good its clocks are.

One line a topic: messages, rate, steps between stamps, gaps, missing messages (by the median step), stamps that
repeat, go back or are zero, header stamp minus log time and its drift, lateness across topics (what arrival
order does to header order), layouts of the bytes, share of NaN. Images, clouds and texts are listed only.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from robopos.cli.options import add_json, add_logs, add_plot

if TYPE_CHECKING:
    from robopos.logs import LogReport, TopicReport

HELP = "what a log holds, and how good its clocks are"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_logs(parser, "several are one log")
    add_json(parser, "the report")
    add_plot(parser, "steps (ms), clock offsets (ms) and lateness (s) over time")


def run(args: argparse.Namespace) -> None:
    """Print the report."""
    from robopos.cli.show import Progress, write_json
    from robopos.logs.audit import audit, report_of

    with Progress("inspect", 1) as progress:
        audited = audit(args.logs, progress=lambda done, total: progress.update(done, total=total))
        report = report_of(*audited)
    _print(report)
    write_json(args.json, report.to_dict())
    if args.plot is not None:
        from robopos.logs.plot import plot_audit

        plot_audit(audited[1], args.plot)
        print(f"plot: {args.plot}")


COLUMNS = (
    *("topic", "type", "count", "fields", "Hz", "step ms\np50/p99/max", "jitter\nms", "gaps\n(longest s)", "missing"),
    *("same/back/\nzero", "header−log ms\n(drift ppm)", "late %\n(max s)", "layouts", "NaN %"),
)


def _print(report: LogReport) -> None:
    from rich.text import Text

    from robopos.cli.printable import printable
    from robopos.cli.show import console, table

    out = console()
    names = ", ".join(report.paths)
    told = f"{report.messages} messages in {report.duration_s:.3f} s, {report.bytes / 1e6:.2f} MB"
    out.print(Text(printable(f"{names}: {told}")))
    table("", COLUMNS, [_cells(topic) for topic in report.topics], texts=2)
    for topic in report.topics:
        if topic.note or topic.undecoded:
            words = [topic.note] if topic.note else []
            words += [f"{topic.undecoded} messages do not fit the schema"] if topic.undecoded else []
            out.print(Text(printable(f"{topic.topic}: {'; '.join(words)}")))
    for text in report.damage:
        out.print(Text(printable(f"damage: {text}")))


def _cells(topic: TopicReport) -> list[str]:
    steps, offset = topic.steps, topic.header_offset
    return [
        topic.topic,
        topic.type or "-",
        str(topic.count),
        str(topic.fields) if topic.fields else "-",
        f"{topic.rate_hz:.2f}" if topic.rate_hz is not None else "-",
        f"{steps.p50_ms:.2f}/{steps.p99_ms:.2f}/{steps.max_ms:.1f}" if steps else "-",
        f"{steps.jitter_ms:.2f}" if steps else "-",
        f"{topic.gaps} ({topic.longest_gap_s:.2f})" if topic.gaps else "0",
        "-" if topic.drops is None else str(topic.drops),
        f"{topic.duplicates}/{topic.backward}/{topic.zero_stamps}",
        f"{offset.p50_ms:.2f} ({offset.drift_ppm:+.1f})" if offset else "-",
        f"{100 * topic.late_share:.1f} ({topic.latest_s:.3f})" if topic.late_share is not None else "-",
        str(topic.layouts) if topic.layouts else "-",
        f"{100 * topic.nan_share:.1f}" if topic.nan_share is not None else "-",
    ]
