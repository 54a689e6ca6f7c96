"""Draw a position scheme, to teach it and to choose its periods.

For each part: what each token or each offset is given, over position; and the product that attention sees, over
the offset between two tokens. On time, positions are seconds. Learned parts are drawn as they start; of `relative`,
which starts with zeros, the buckets are drawn.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from robopos.cli.options import add_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from robopos.positions import Part

HELP = "draw a position scheme"
POINTS = 2000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("subject", choices=("positions",), help="what to draw")
    parser.add_argument("scheme", metavar="SCHEME", help="CLOCK-SCHEME, or several joined by '+'")
    parser.add_argument("--dim", type=int, default=64, metavar="D", help="width of the tokens (default: %(default)s)")
    parser.add_argument(
        "--heads", type=int, default=8, metavar="H", help="heads of the attention (default: %(default)s)"
    )
    parser.add_argument(
        "--length", type=int, default=100, metavar="N", help="on index: tokens to draw (default: %(default)s)"
    )
    parser.add_argument(
        "--span-s", type=float, default=5.0, metavar="S", help="on time: seconds to draw (s; default: %(default)s)"
    )
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of the scheme, as in the model's position_options; may be repeated",
    )
    add_out(parser, "picture to write", default="SCHEME.png")


def run(args: argparse.Namespace) -> None:
    """Draw and say where."""
    import torch
    import yaml
    from matplotlib.figure import Figure

    from robopos.errors import ConfigError
    from robopos.files import whole_file
    from robopos.positions import build_positions

    options = {}
    for option in args.option:
        name, found, value = option.partition("=")
        if not found:
            raise ConfigError(f"--option {option!r}: it must be NAME=VALUE")
        options[name] = yaml.safe_load(value)
    if args.length < 2 or not args.span_s > 0:
        raise ConfigError(f"--length {args.length} --span-s {args.span_s}: at least 2 tokens and above 0 s")
    scheme = build_positions(args.scheme, dim=args.dim, heads=args.heads, **options)
    if not scheme.parts:
        raise ConfigError("the scheme 'none' has nothing to draw")

    figure = Figure(figsize=(11, 3.6 * len(scheme.parts)), layout="constrained")
    rows = figure.subplots(len(scheme.parts), 2, squeeze=False)
    for (name, part), (left, right) in zip(scheme.parts.items(), rows, strict=True):
        if part.clock == "index":
            ticks, unit = torch.arange(args.length), "tokens"
        else:
            ticks, unit = (torch.linspace(0, args.span_s, POINTS, dtype=torch.float64) * 1e9).round().long(), "s"
        with torch.no_grad():
            _draw(part, ticks, unit, left, right)
        left.set_title(name)
    out = args.out.replace("SCHEME", args.scheme)
    try:
        with whole_file(out) as beside:
            figure.savefig(beside, dpi=110)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{out}: cannot be written: {error}") from None
    print(f"plot: {out}")


def _draw(part: Part, ticks: Any, unit: str, left: Axes, right: Axes) -> None:
    import torch

    from robopos.positions import AdditiveEncoding, RelativeBias, Rotation, ScoreBias

    shown = (ticks.double() * part.unit).numpy()
    if isinstance(part, AdditiveEncoding):
        vectors = part.encode(ticks).float()
        _image(left, shown, vectors.T.numpy(), f"position ({unit})", "channel")
        # From the first position: of sinusoids any other would give the same curve.
        products = vectors @ vectors[0] / vectors[0].square().sum().clamp(min=1e-12)
        right.plot(shown, products.numpy())
        right.set_ylabel("dot product with the first, relative")
    elif isinstance(part, Rotation):
        angles = part.angles(ticks)
        _image(left, shown, angles.cos().T.numpy(), f"position ({unit})", "pair of channels (cosine)")
        right.plot(shown, angles.cos().mean(-1).numpy())
        right.set_ylabel("score of equal q and k, relative")
    elif isinstance(part, ScoreBias):
        label = "bias of the score"
        if isinstance(part, RelativeBias):
            part.weight.copy_(torch.arange(part.weight.shape[1]).expand_as(part.weight))
            label = "bucket"
        bias = part.scores(ticks, ticks[:1])[..., 0]
        _image(left, shown, bias.numpy(), f"offset ({unit})", "head")
        right.plot(shown, bias.T.numpy(), label=[f"head {head}" for head in range(part.heads)])
        right.set_ylabel(label)
        right.legend(fontsize="x-small", ncols=2)
    right.set_xlabel(f"offset ({unit})")
    right.grid(alpha=0.3)


def _image(axes: Axes, positions: Any, rows: Any, xlabel: str, ylabel: str) -> None:
    from matplotlib.ticker import MaxNLocator

    extent = (float(positions[0]), float(positions[-1]), len(rows) - 0.5, -0.5)
    picture = axes.imshow(rows, aspect="auto", extent=extent, cmap="RdBu")
    axes.figure.colorbar(picture, ax=axes)
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
