"""The study of positions by index against positions by time."""

from robopos.comparison.report import markdown_table, summarize, write_cells, write_report
from robopos.comparison.settings import StudySettings
from robopos.comparison.study import Cell, Study

__all__ = ["Cell", "Study", "StudySettings", "markdown_table", "summarize", "write_cells", "write_report"]
