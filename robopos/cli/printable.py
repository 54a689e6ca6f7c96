"""Text from logs and bundles for the terminal, where some letters are orders."""

from __future__ import annotations

MOST = 4000


def printable(text: str) -> str:
    """What a terminal obeys (escape sequences, carriage returns, changes of direction) as ``\\x1b`` and the like.

    Line feeds stay; a text of more than MOST letters is cut.
    """
    if len(text) > MOST:
        text = f"{text[:MOST]}… ({len(text) - MOST} letters more)"
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in text
    )
