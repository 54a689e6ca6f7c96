"""What is written for programs and pages stays valid, whatever names and numbers are in it."""

from __future__ import annotations

import json
import math

from robopos.texts import json_text, markdown_table


def test_json_has_null_for_a_number_that_is_not_finite():
    content = {"a": [1.5, math.inf, {"b": (math.nan, 2)}], "c": "NaN"}

    def refuse(word: str) -> None:
        raise AssertionError(word)

    read = json.loads(json_text(content), parse_constant=refuse)
    assert read == {"a": [1.5, None, {"b": [None, 2]}], "c": "NaN"}


def test_a_name_breaks_no_markdown_table():
    table = markdown_table(["target", "RMSE"], [["p|q", "1"], ["<b>x</b> & $y$\n", "2"], ["a\\|b", "-"]])
    assert table.splitlines() == [
        "| target | RMSE |",
        "| --- | ---: |",
        r"| p\|q | 1 |",
        r"| &lt;b&gt;x&lt;/b&gt; &amp; \$y\$ | 2 |",
        r"| a\\\|b | - |",
    ]
