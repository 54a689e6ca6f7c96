"""Ask a trained model what its positions do, on windows of a log.

One line a question: does order reach the last output (tokens shuffled), does time (stretched), is a shift of all
stamps invisible, is padding, do tables and periods fit the log's windows. 'FAILED' where a promise is broken.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from robopos.cli.options import add_bundle, add_device, add_json, add_log

if TYPE_CHECKING:
    from torch import Tensor

    from robopos.model import Bundle
    from robopos.sequences import TokenColumns

HELP = "what the positions of a trained model do"
WINDOWS = 16
# Of the output's own size: below SEEN nothing arrives, above ROUNDING it is no rounding of float32.
SEEN, ROUNDING = 1e-3, 1e-4
YEAR_NS = 365 * 86_400 * 10**9


class Verdict(NamedTuple):
    """One line of the answer; `passed` is None where nothing was promised."""

    question: str
    finding: str
    passed: bool | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_bundle(parser)
    add_log(parser)
    add_device(parser)
    add_json(parser, "the answers")


def run(args: argparse.Namespace) -> None:
    """Print the verdicts."""
    import torch

    from robopos.cli.printable import printable
    from robopos.cli.show import notes, write_json
    from robopos.errors import BundleError, SequenceError
    from robopos.logs import read_logs
    from robopos.model import Bundle, pick_device
    from robopos.sequences import SequenceDataset

    bundle = Bundle.load(args.bundle, pick_device(args.device))
    device = next(bundle.network.parameters()).device
    logs = read_logs(args.log, bundle.layout.log_streams()).logs
    notes(warning for log in logs for warning in log.warnings)
    dataset = SequenceDataset.build(logs, bundle.layout)
    columns = dataset.columns(bundle.normalization, "all", device)
    length = bundle.settings.context
    anchors = columns.anchors(length - 1)
    if length < 3 or not len(anchors):
        raise SequenceError(f"{args.log}: no {max(length, 3)} messages without a gap, which the checks ask for")
    picked = anchors[:: max(1, len(anchors) // WINDOWS)][:WINDOWS]
    with torch.no_grad():
        verdicts = [
            *_effects(bundle, columns, torch.from_numpy(picked).to(device), length),
            *_fit(bundle, columns, torch.from_numpy(anchors).to(device), length),
        ]
    print(f"{args.bundle}: {bundle.settings.positions}, {len(picked)} windows of {length} messages of {args.log}")
    for verdict in verdicts:
        mark = {True: "ok", False: "FAILED", None: "-"}[verdict.passed]
        print(printable(f"{mark:7}{verdict.question}: {verdict.finding}"))
    write_json(args.json, [verdict._asdict() for verdict in verdicts])
    failed = sum(verdict.passed is False for verdict in verdicts)
    if failed:
        raise BundleError(f"{failed} of {len(verdicts)} checks failed")


def _effects(bundle: Bundle, columns: TokenColumns, ends: Tensor, length: int) -> list[Verdict]:
    """What the diagnostics say of the whole network, as a function of its embedded input."""
    from robopos.model import as_function
    from robopos.positions import diagnostics

    tokens, _ = columns.windows(ends, length)
    network, x, positions = as_function(bundle, tokens)
    scheme, timed = bundle.network.positions, bundle.settings.context_s is not None
    on_time = timed or any(part.clock == "time" for part in scheme.parts.values())
    shuffle = diagnostics.shuffle_effect(network, x, positions)
    stretch = diagnostics.stretch_effect(network, x, positions)
    shift = max(diagnostics.shift_effect(network, x, positions, shift) for shift in (1, YEAR_NS, -50 * YEAR_NS))
    padding = diagnostics.padding_effect(network, x, positions, length // 2)
    return [
        Verdict(
            "position reaches the last output",
            f"{shuffle:.1%} change when the messages before it change places"
            + ("" if scheme.parts else " (scheme none: only causality orders)"),
            shuffle > SEEN if scheme.parts else None,
        ),
        Verdict(
            "time reaches the last output",
            f"{stretch:.1%} change when time runs at half speed"
            + ("" if on_time else " (neither scheme nor band is on time)"),
            stretch > SEEN if on_time else None,
        ),
        Verdict("a shift of all stamps is invisible", f"{shift:.1e} change over 50 years", shift <= ROUNDING),
        Verdict("padding is invisible", f"{padding:.1e} between left and right", padding <= ROUNDING),
    ]


def _fit(bundle: Bundle, columns: TokenColumns, ends: Tensor, length: int) -> list[Verdict]:
    """Whether tables and periods are as long as the log's windows."""
    from robopos.positions import LearnedEncoding, RotaryEmbedding, SinusoidalEncoding

    time_ns = columns.time_ns
    spans = (time_ns[ends] - time_ns[ends - length + 1]).abs().double() / 1e9
    span_s, typical_s = float(spans.max()), float(spans.median())
    verdicts = []
    for name, part in bundle.network.positions.parts.items():
        if isinstance(part, LearnedEncoding) and part.clock == "index":
            finding = f"{part.max_length} rows for windows of {length} messages"
            verdicts.append(Verdict(f"the table of {name} is long enough", finding, part.max_length >= length))
        elif isinstance(part, LearnedEncoding):
            finding = f"{part.max_s:.3g} s of knots for windows of {typical_s:.3g} s, {span_s:.3g} s at most"
            verdicts.append(Verdict(f"the table of {name} is long enough", finding, part.max_s >= span_s))
        elif part.clock == "time" and isinstance(part, (RotaryEmbedding, SinusoidalEncoding)):
            periods_s = part.periods()
            shortest_s, longest_s = float(periods_s.min()), float(periods_s.max())
            finding = f"{shortest_s:.3g} to {longest_s:.3g} s for windows of {typical_s:.3g} s, {span_s:.3g} s at most"
            verdicts.append(Verdict(f"the longest period of {name} spans a window", finding, longest_s >= span_s))
    return verdicts
