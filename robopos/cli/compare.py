"""Compare position schemes on your own logs: same data, same budget, several seeds, the same anchors.

Options of the YAML are also options of the command line, with the same name (for example --max_steps 300).
"""

from __future__ import annotations

import argparse

HELP = "compare positions by index and by time"
# jsonargparse reads the study's options, --help too.
PARSER_OPTIONS = {"add_help": False, "prefix_chars": "\0"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> None:
    from pathlib import Path

    from rich.markdown import Markdown

    from robopos.cli.show import Progress, console
    from robopos.comparison import Study, StudySettings, markdown_table, write_cells, write_report
    from robopos.training.parser import SettingsParser

    parser = SettingsParser(prog="robopos compare", description=__doc__)
    parser.add_argument("-c", "--config", action="config", help="YAML configuration; later options override it")
    parser.add_class_arguments(StudySettings, None)
    parser.add_argument("-o", "--out", type=str, default="report", help="folder of the report (default: report)")
    arguments = [a for a in args.arguments if a != "--debug"]
    args.debug = args.debug or len(arguments) < len(args.arguments)
    given = parser.parse_args(arguments)
    values = parser.instantiate_classes(given)
    out = Path(values.pop("out"))
    values.pop("config", None)
    study = Study(StudySettings(**values))

    steps, cells = study.settings.max_steps, []
    print(
        f"{len(study.cells)} trainings of {steps} steps; {len(study.conditions[0].anchors)} test anchors under "
        f"{len(study.conditions)} conditions",
        flush=True,
    )
    with Progress("compare", steps * len(study.cells)) as progress:
        for number, (scheme, seed) in enumerate(study.cells):

            def tell(step: int, first: int = number * steps, note: str = f"{scheme}, seed {seed}") -> None:
                progress.update(first + step, note)

            cells.append(study.run_cell(scheme, seed, tell))
            frame = write_cells(out, cells)
    report = write_report(out, study, cells)
    console().print(Markdown(markdown_table(frame)))
    print(f"report: {report}")
