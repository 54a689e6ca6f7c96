"""The study of positions by index against positions by time."""

from robopos.comparison.report import write_report
from robopos.comparison.results import Results
from robopos.comparison.settings import CellKey, SchemeSettings, StudySettings
from robopos.comparison.study import Study
from robopos.comparison.tables import markdown, skill_table

__all__ = [
    "CellKey",
    "Results",
    "SchemeSettings",
    "Study",
    "StudySettings",
    "markdown",
    "skill_table",
    "write_report",
]
