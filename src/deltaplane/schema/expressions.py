"""SQL expressions of declarations: compared by meaning of their tokens, searched for the columns they use.

Delta re-tokenises a CHECK before it stores it (`a>0` comes back as `a > 0`), so texts are compared as token
lists.
"""

from __future__ import annotations

import re
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

__all__ = [
    "canonical",
    "has_subquery",
    "is_single_token",
    "nondeterministic_functions",
    "not_an_expression",
    "parses",
    "references",
    "strip_outer_parentheses",
]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--|/\*)
  | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[A-Za-z]*)
  | (?P<word>\w+)
  | (?P<operator><=>|<>|!=|<=|>=|==|\|\||->|=>|::|<<|>>>|>>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN_IDENTIFIER = re.compile(r"[^\W\d]\w*\Z")
_NONDETERMINISTIC = {
    "rand",
    "random",
    "randn",
    "uuid",
    "shuffle",
    "monotonically_increasing_id",
    "input_file_name",
    "spark_partition_id",
    "current_timestamp",
    "current_date",
    "now",
    "localtimestamp",
    "current_user",
    "randstr",
    "uniform",
}


@lru_cache(maxsize=16384)
def canonical(expression: str) -> str:
    """Return the text two expressions share when they differ only in spacing, case or needless quoting."""
    tokens: list[str] = []
    for match in _TOKEN.finditer(strip_outer_parentheses(expression)):
        kind, text = match.lastgroup, match.group()
        if kind == "space":
            continue
        if kind == "quoted":
            inner = text[1:-1].replace("``", "`")
            tokens.append(inner.casefold() if _PLAIN_IDENTIFIER.match(inner) else text.casefold())
        elif kind == "string":
            tokens.append(text)
        else:
            tokens.append("<>" if text == "!=" else text.casefold())
    return " ".join(tokens)


def not_an_expression(text: str) -> str | None:
    """Say why a text cannot stand where SQL expects one expression, or None when it can.

    This is what keeps a default or a CHECK from bringing a second clause or statement along.
    """
    if not text.strip():
        return "it is empty"
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup == "comment":
            return "it contains a comment"
        if token in ("'", '"', "`"):
            return f"a {token} is never closed"
        if token in ("(", "["):
            depth += 1
        elif token in (")", "]"):
            depth -= 1
        elif token == ";":
            return "it contains a semicolon"
        elif token == "," and depth == 0:
            return "it contains a comma outside parentheses"
        if depth < 0:
            return "a parenthesis is closed that was never opened"
    return "a parenthesis is never closed" if depth else None


def is_single_token(text: str) -> bool:
    """Tell whether a text is one literal or word, which needs no parentheses."""
    kinds = [match.lastgroup for match in _TOKEN.finditer(text.strip())]
    return len(kinds) == 1 and kinds[0] in ("string", "number", "word")


def strip_outer_parentheses(expression: str) -> str:
    """Return an expression without parentheses around the whole of it."""
    text = expression.strip()
    while text.startswith("(") and text.endswith(")") and _matching_close(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _matching_close(text: str) -> int:
    depth = 0
    for match in _TOKEN.finditer(text):
        if match.group() == "(":
            depth += 1
        elif match.group() == ")":
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


@lru_cache(maxsize=16384)
def references(expression: str) -> frozenset[tuple[str, ...]]:
    """Return the columns an expression uses, as case-folded paths (`s.a` is `("s", "a")`)."""
    tree = _tree(expression)
    if tree is None:
        return frozenset(
            (match.group().strip("`").casefold(),)
            for match in _TOKEN.finditer(expression)
            if match.lastgroup in ("word", "quoted")
        )
    found = set()
    for column in tree.find_all(exp.Column):
        parts = [part.name.casefold() for part in column.parts]
        parent = column.parent
        while isinstance(parent, exp.Dot) and isinstance(parent.expression, exp.Identifier):
            parts.append(parent.expression.name.casefold())
            parent = parent.parent
        found.add(tuple(parts))
    return frozenset(found)


def parses(expression: str) -> bool:
    """Tell whether the expression could be read; otherwise `references` is a superset by words."""
    return _tree(expression) is not None


def has_subquery(expression: str) -> bool:
    """Tell whether the expression contains a subquery."""
    tree = _tree(expression)
    if tree is None:
        return bool(re.search(r"\(\s*select\b", expression, re.IGNORECASE))
    return tree.find(exp.Select) is not None


def nondeterministic_functions(expression: str) -> tuple[str, ...]:
    """Return the functions in the expression that give another answer on another call."""
    words = {
        match.group().casefold() for match in _TOKEN.finditer(expression) if match.lastgroup in ("word",)
    }
    return tuple(sorted(words & _NONDETERMINISTIC))


@lru_cache(maxsize=16384)
def _tree(expression: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(expression, dialect="spark")
    except (SqlglotError, RecursionError):
        return None
