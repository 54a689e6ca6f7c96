"""Compare position schemes on your own logs: same data, same budget, several seeds, the same anchors.

Options of the YAML are also options of the command line, with the same name (for example --max_steps 300). What is done
already is kept: the same command again goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from robopos.cli.options import HANDS_ON

if TYPE_CHECKING:
    from robopos.training.parser import SettingsParser

HELP = "compare positions by index and by time"
PARSER_OPTIONS = HANDS_ON  # to settings_parser()
OF_THE_COMMAND = ("config", "out", "only", "add_seed", "dry_run", "workers", "ray")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("settings", nargs=argparse.REMAINDER, help="-c CONFIG, -o FOLDER, any setting by its name")


def settings_parser() -> SettingsParser:
    """The study's settings, and the options of the command."""
    from robopos.comparison import StudySettings
    from robopos.training.parser import ConfigFile, SettingsParser

    parser = SettingsParser(prog="robopos compare", description=__doc__)
    parser.add_argument(
        "-c", "--config", action=ConfigFile, metavar="CONFIG", help="YAML configuration; later options override it"
    )
    parser.add_class_arguments(StudySettings, None)
    parser.add_argument("-o", "--out", type=str, default="report", metavar="FOLDER", help="folder of cells and report")
    parser.add_argument("--only", type=str | None, metavar="TEXT", help="make only cells whose name holds this text")
    parser.add_argument(
        "--add-seed", type=int | None, metavar="SEED", help="one seed more; the folder remembers it for later calls"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the grid and about how long it takes (min); make nothing"
    )
    parser.add_argument(
        "--workers", type=int | None, metavar="N", help="processes; by default one a core, or one a GPU"
    )
    parser.add_argument(
        "--ray", type=str | None, metavar="ADDRESS", help="make the cells on a Ray cluster; 'auto', or 'local'"
    )
    return parser


def run(args: argparse.Namespace) -> None:
    """Make what is missing, then the report of all."""
    import shlex
    from pathlib import Path

    from robopos.cli.show import Progress, notes, table
    from robopos.comparison import Study, StudySettings, skill_table, write_report
    from robopos.errors import ConfigError

    parser = settings_parser()
    values = parser.instantiate_classes(parser.parse_args(args.settings))
    _, out, only, add_seed, dry_run, workers, ray = (values.pop(name, None) for name in OF_THE_COMMAND)
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}, must be a number of processes >= 1")
    study = Study(StudySettings(**values), out, add_seed)
    notes(study.data.notes)
    missing = study.missing(only)
    grid, conditions = len(study.cells), len(study.data.conditions)
    print(
        f"{grid} cells of {study.settings.max_steps} steps, {conditions} conditions; to make: {len(missing)}",
        flush=True,
    )
    if dry_run:
        for key in study.cells:
            print(f"  {'to make' if key in missing else '-':8} {key}")
        print(f"about {study.estimate_s(missing, workers) / 60:.1f} min" if missing else "nothing to make")
        return
    if missing:
        try:
            with Progress("compare", study.work(missing)) as progress:
                study.run(missing, progress.update, workers=workers, ray=ray)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on from the cells that are done") from None
    results = study.results(shlex.join(["robopos", "compare", *args.settings]))
    report = write_report(Path(out), results)
    table(*skill_table(results, results.regime))
    print(f"report: {report}")
    if results.failed:
        failed = "; ".join(f"{cell.key}: {cell.error}" for cell in results.failed)
        raise ConfigError(f"{len(results.failed)} of {grid} cells failed, the report is of the others: {failed}")
