"""The clock audit as a picture."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from robopos.errors import LogError
from robopos.files import whole_file
from robopos.logs.audit import Audit, late_of
from robopos.texts import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More points than this are thinned: the picture would not change.
_POINTS = 20_000


def plot_audit(audits: list[Audit], path: str | os.PathLike[str]) -> None:
    """Draw the figure of `audit_figure` into a file.

    Raises:
        LogError: no topic has two messages, or the file cannot be written.
    """
    figure = audit_figure(audits)
    try:
        with whole_file(path) as beside:
            figure.savefig(beside, dpi=120)
    except (OSError, ValueError) as error:
        raise LogError(f"{path}: the plot cannot be written ({error})") from error


def audit_figure(audits: list[Audit]) -> Figure:
    """Over log time, the steps between stamps, header stamp minus log time, and lateness; a topic has one colour.

    Raises:
        LogError: no topic has two messages.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    shown = [one for one in audits if len(one.log) > 1]
    if not shown:
        raise LogError("nothing to plot: no topic has two messages")
    late = late_of(audits)
    origin = min(int(one.log[0]) for one in shown)
    figure = Figure(figsize=(11, 9), layout="constrained")
    steps, offset, lateness = figure.subplots(3, 1, sharex=True)
    count = len(shown)
    colors = colormaps["tab10"](range(count)) if count <= 10 else colormaps["turbo"](np.linspace(0, 1, count))
    for one, color in zip(shown, colors, strict=True):
        # Not each panel's own cycle of colours: a topic without a header is in the first panel only.
        style: dict[str, Any] = {"color": color, "markersize": 2, "label": drawn(one.topic)}
        thin = slice(None, None, max(1, len(one.log) // _POINTS))
        seconds = (one.log - origin) / 1e9
        steps.plot(seconds[1:][thin], np.diff(one.time)[thin] / 1e6, ".", **style)
        if one.topic in late:
            stamped = one.stamp != 0
            gap = (one.stamp - one.log)[stamped] / 1e6
            offset.plot(seconds[stamped][thin], gap[thin], ".", **style)
            lateness.plot(seconds[thin], late[one.topic][thin], ".", **style)
    steps.set_ylabel("step between stamps (ms)")
    steps.set_yscale("symlog", linthresh=1.0)
    offset.set_ylabel("header stamp − log time (ms)")
    lateness.set_ylabel("behind the newest stamp (s)")
    lateness.set_xlabel("log time (s)")
    steps.legend(loc="upper right", fontsize="small", markerscale=4)
    return figure
