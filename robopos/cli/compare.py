"""Compare position schemes on your own logs: same data, same budget, several seeds, the same anchors.

Options of the YAML are also options of the command line, with the same name (for example --max_steps 300). What is done
already is kept: the same command again goes on where it was interrupted.
"""

from __future__ import annotations

import argparse

HELP = "compare positions by index and by time"
# jsonargparse reads the study's options, --help too.
PARSER_OPTIONS = {"add_help": False, "prefix_chars": "\0"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> None:
    import shlex
    from pathlib import Path

    from rich.markdown import Markdown

    from robopos.cli.show import Progress, console
    from robopos.comparison import Study, StudySettings, write_report
    from robopos.comparison.tables import markdown, skill_table
    from robopos.errors import ConfigError
    from robopos.training.parser import SettingsParser

    parser = SettingsParser(prog="robopos compare", description=__doc__)
    parser.add_argument("-c", "--config", action="config", help="YAML configuration; later options override it")
    parser.add_class_arguments(StudySettings, None)
    parser.add_argument("-o", "--out", type=str, default="report", help="folder of cells and report (default: report)")
    parser.add_argument("--only", type=str | None, default=None, help="make only cells whose name holds this text")
    parser.add_argument("--add-seed", type=int | None, default=None, help="one seed more; the folder remembers it")
    parser.add_argument(
        "--dry-run", action="store_true", help="show the grid and about how long it takes; make nothing"
    )
    parser.add_argument(
        "--workers", type=int | None, default=None, help="processes (default: one a core, or one a GPU)"
    )
    parser.add_argument("--ray", type=str | None, default=None, help="address of a Ray cluster, 'auto', or 'local'")
    arguments = [a for a in args.arguments if a != "--debug"]
    args.debug = args.debug or len(arguments) < len(args.arguments)
    given = parser.parse_args(arguments)
    values = parser.instantiate_classes(given)
    names = ("out", "only", "add_seed", "dry_run", "workers", "ray")
    out, only, add_seed, dry_run, workers, ray = (values.pop(name) for name in names)
    values.pop("config", None)
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}, must be a number of processes >= 1")
    study = Study(StudySettings(**values), out, add_seed)
    missing = study.missing(only)
    grid, conditions = len(study.cells), len(study.data.conditions)
    print(
        f"{grid} cells of {study.settings.max_steps} steps, {conditions} conditions; to make: {len(missing)}",
        flush=True,
    )
    if dry_run:
        for key in study.cells:
            print(f"  {'to make' if key in missing else '-':8} {key}")
        print(f"about {study.estimate_s(missing, workers):.0f} s of work" if missing else "nothing to make")
        return
    if missing:
        with Progress("compare", study.work(missing)) as progress:
            study.run(missing, progress.update, workers=workers, ray=ray)
    results = study.results(shlex.join(["robopos", "compare", *arguments]))
    report = write_report(Path(out), results)
    console().print(Markdown(markdown(skill_table(results, results.regime))))
    print(f"report: {report}")
    if results.failed:
        failed = "; ".join(f"{cell.key}: {cell.error}" for cell in results.failed)
        raise ConfigError(f"{len(results.failed)} of {grid} cells failed, the report is of the others: {failed}")
