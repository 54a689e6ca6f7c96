"""The report as one HTML page that needs no other file and no network."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from robopos.comparison.tables import Table

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1c2126; --soft: #5b6670; --line: #d9dee3; --band: #f4f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14181c; --ink: #e4e8ec; --soft: #9aa5b1; --line: #333c45; --band: #1c2228; }
}
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto;
  padding: 1.5rem; max-width: 76rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin-bottom: .3rem; }
p.summary { font-size: 1.05rem; max-width: 62rem; border-left: 4px solid #0f88c8; padding-left: 1rem; }
p.note, figcaption, dd { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .86rem; margin: .4rem 0 1rem; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--page); }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
tbody tr:hover td { background: var(--band); }
figure { margin: 1rem 0 2rem; } img { max-width: 100%; height: auto; } pre { background: var(--band); padding: .7rem;
  overflow-x: auto; } dt { font-weight: 600; margin-top: .4rem; } dd { margin-left: 0; overflow-wrap: anywhere; }
"""

Looks = Mapping[str, bytes]
"""PNG of a plot by the theme's name: ``light`` and ``dark``."""


def page(
    title: str,
    summary: str,
    sections: Sequence[tuple[str, str]],
    facts: Mapping[str, str],
) -> str:
    """The page: a first paragraph, sections of (heading, HTML), and the facts that make it reproducible."""
    body = [f"<h1>{escape(title)}</h1>", f'<p class="summary">{escape(summary)}</p>']
    for heading, content in sections:
        body += [f"<h2>{escape(heading)}</h2>", content]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    body += ["<h2>How it was made</h2>", f"<dl>{listed}</dl>"]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def table_html(table: Table, name: str) -> str:
    """A table; ``name`` is its id."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in table.rows)
    return (
        f'<h3>{escape(table.title)}</h3>\n<div class="scroll"><table id="{escape(name)}">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def plot_html(looks: Looks, caption: str) -> str:
    """A plot in the look that the page has."""
    light, dark = (f"data:image/png;base64,{base64.b64encode(looks[name]).decode()}" for name in ("light", "dark"))
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="{escape(caption)}" src="{light}"></picture><figcaption>{escape(caption)}</figcaption></figure>'
    )


def note_html(lines: Sequence[str]) -> str:
    """A list of remarks."""
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>" if lines else ""


def text_html(text: str) -> str:
    """A paragraph of explanation."""
    return f'<p class="note">{escape(text)}</p>'
