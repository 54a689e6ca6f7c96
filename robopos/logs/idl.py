"""OMG IDL texts, as rosbag2 stores them for types defined in `.idl` files."""

from __future__ import annotations

import re
from typing import Literal

from robopos.errors import LogError
from robopos.logs.schema import MAX_DEPTH, RawField, array_size

_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)|(?P<text>\"(?:\\.|[^\"\\])*\")|(?P<word>@?[A-Za-z_]\w*(?:::\w+)*)"
    r"|(?P<number>[-+]?[\d.][\w.+-]*)|(?P<mark>[{}()<>\[\];,=:|]|<<|>>)",
    re.DOTALL,
)
_PRIMITIVES = {
    "boolean": "bool",
    "octet": "byte",
    "char": "char",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "unsigned short": "uint16",
    "long": "int32",
    "unsigned long": "uint32",
    "long long": "int64",
    "unsigned long long": "uint64",
    "string": "string",
    "wstring": "wstring",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_SEPARATOR = re.compile(r"^={3,}[ \t\r]*$", re.MULTILINE)
_HEAD = re.compile(r"\A\s*IDL:\s*\S+[ \t\r]*$", re.MULTILINE)
Array = Literal["one", "fixed", "sequence"]


def parse_idl(name: str, text: str) -> dict[str, list[RawField]]:
    """The structures of one or several IDL files, by short type name.

    Modules, structures, typedefs, constants (skipped), enumerations (uint32), annotations (skipped), sequences,
    bounded strings and one-dimensional arrays are read.

    Raises:
        LogError: anything else.
    """
    definitions: dict[str, list[RawField]] = {}
    typedefs: dict[str, tuple[str, Array, int]] = {}
    for section in _SEPARATOR.split(text):
        _Parser(name, _HEAD.sub("", section, count=1), definitions, typedefs).file()
    return definitions


class _Parser:
    def __init__(
        self,
        name: str,
        text: str,
        definitions: dict[str, list[RawField]],
        typedefs: dict[str, tuple[str, Array, int]],
    ) -> None:
        self.name = name
        self.definitions = definitions
        self.typedefs = typedefs
        self.constants: dict[str, int] = {}
        self.tokens: list[str] = []
        self.at = 0
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise LogError(f"{name}: the IDL text has an unexpected {text[place : place + 20]!r}")
            if match.lastgroup != "skip":
                self.tokens.append(match.group())
            place = match.end()

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self, want: str | None = None) -> str:
        token = self.peek()
        if not token or (want is not None and token != want):
            raise LogError(f"{self.name}: the IDL text has {token or 'its end'!r} where {want or 'more'!r} should be")
        self.at += 1
        return token

    def file(self) -> None:
        while self.peek():
            self.definition(())

    def annotations(self) -> None:
        while self.peek().startswith("@"):
            self.next()
            if self.peek() == "(":
                depth = 0
                while True:
                    token = self.next()
                    depth += (token == "(") - (token == ")")
                    if depth == 0:
                        break

    def definition(self, modules: tuple[str, ...]) -> None:
        self.annotations()
        kind = self.next()
        if kind == "module":
            inner = (*modules, self.next())
            if len(inner) > MAX_DEPTH:
                raise LogError(f"{self.name}: the IDL text has more than {MAX_DEPTH} modules inside each other")
            self.next("{")
            while self.peek() != "}":
                self.definition(inner)
            self.next("}")
        elif kind == "struct":
            full = _short("::".join((*modules, self.next())))
            self.next("{")
            self.definitions[full] = []
            while self.peek() != "}":
                self.member(self.definitions[full], modules)
            self.next("}")
        elif kind == "typedef":
            base, array, size = self.type(modules)
            alias = self.next()
            array, size = self.brackets(array, size)
            self.typedefs["::".join((*modules, alias))] = base, array, size
        elif kind == "const":
            self.type(modules)
            constant = self.next()
            self.next("=")
            value = []
            while self.peek() != ";":
                value.append(self.next())
            if len(value) == 1 and value[0].isdigit() and len(value[0]) <= 9:  # others are no sizes of arrays
                self.constants[constant] = int(value[0])
        elif kind == "enum":
            alias = self.next()
            while self.next() != "}":
                pass
            self.typedefs["::".join((*modules, alias))] = "uint32", "one", 0
        else:
            raise LogError(f"{self.name}: the IDL text has {kind!r}, which is not read")
        self.next(";")

    def member(self, fields: list[RawField], modules: tuple[str, ...]) -> None:
        self.annotations()
        base, array, size = self.type(modules)
        while True:
            field = self.next()
            this_array, this_size = self.brackets(array, size)
            if field != "structure_needs_at_least_one_member":
                fields.append(RawField(base, this_array, this_size, field, None))
            if self.next() == ";":
                return

    def brackets(self, array: Array, size: int) -> tuple[Array, int]:
        if self.peek() != "[":
            return array, size
        if array != "one":
            raise LogError(f"{self.name}: the IDL text has an array of arrays, which is not read")
        self.next("[")
        word = self.next()
        self.next("]")
        if self.peek() == "[":
            raise LogError(f"{self.name}: the IDL text has an array of several dimensions, which is not read")
        return "fixed", self.constants[word] if word in self.constants else array_size(self.name, word)

    def type(self, modules: tuple[str, ...]) -> tuple[str, Array, int]:
        word = self.next()
        if word == "sequence":
            self.next("<")
            nested = self.peek() == "sequence"
            base, array, _ = ("", "sequence", 0) if nested else self.type(modules)
            if array != "one":
                raise LogError(f"{self.name}: the IDL text has a sequence of arrays, which is not read")
            while self.next() != ">":
                pass
            return base, "sequence", 0
        if word in ("string", "wstring") and self.peek() == "<":
            while self.next() != ">":
                pass
        while word in ("unsigned", "long", "unsigned long") and self.peek() in ("short", "long", "double"):
            word += " " + self.next()
        if word in _PRIMITIVES:
            return _PRIMITIVES[word], "one", 0
        for depth in range(len(modules), -1, -1):
            alias = "::".join((*modules[:depth], word))
            if alias in self.typedefs:
                return self.typedefs[alias]
        return (_short(word) if "::" in word else _short("::".join((*modules, word)))), "one", 0


def _short(path: str) -> str:
    parts = path.split("::")
    return f"{parts[0]}/{parts[-1]}" if len(parts) > 1 else path
