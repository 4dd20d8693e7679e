"""The page docs/hook-objects.md is made of the code. `UPDATE_EXPECTED=1` writes it anew."""

import ast
import inspect
import os
import sys
import textwrap
import unittest
from typing import Any, Dict, Iterator, List, Tuple

from larder_double import ROOT

sys.path.insert(0, ROOT)

import larder  # noqa: E402
from larder import _definitions, _messages, testing  # noqa: E402

PAGE = os.path.join(os.path.dirname(os.path.abspath(ROOT)), "docs", "hook-objects.md")
HEAD = """# The objects of hooks

Each attribute and method that a hook or a test of hooks may use ([python.md](python.md) explains them). This page is made of the code:
an editor shows the same, with `larder scripts --library FOLDER` in its path.

A value that is not allowed raises `ValueError` or `TypeError` at the line that sets it. Texts are `str`; times are seconds, or a text with a unit (`"90s"`, `"5m"`, `"2h"`, `"1d"`).
"""
CLASSES: List[Tuple[str, Any]] = [
    ("`req`, in every hook", larder.Request),
    ("`req.url`", larder.Url),
    ("`req.query`", larder.Query),
    ("`req.headers`, `found.headers` and `resp.headers`", larder.Headers),
    ("`req.cookies`", larder.Cookies),
    ("`req.key`", _messages.Key),
    ("`found`, in `found` hooks", larder.Found),
    ("`resp`, in `fetched` hooks", larder.FetchedResponse),
    ("`resp.tags`, in `fetched` hooks", _messages.Tags),
    ("`resp.purge`, in `fetched` hooks", _messages.Purge),
    ("`resp`, in `respond` hooks", larder.Answer),
    ("`larder.Response`", larder.Response),
]
OPERATORS = {
    "__getitem__": "`x[name]`: the value; `KeyError` where there is none.",
    "__setitem__": "`x[name] = value`: like `set`.",
    "__delitem__": "`del x[name]`: removes it; it may be absent.",
    "__contains__": "`name in x`",
    "__iter__": "`for name in x`: each name once.",
    "__len__": "`len(x)`: the number of names.",
}


def of_doc(value: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    doc = inspect.getdoc(value)
    assert doc, f"{value!r} has no docstring"
    return " ".join(doc.split("\n\n")[0].split())


def prose_of(value: Any) -> str:
    """A docstring in one line, without its examples."""
    # Of the source, where examples are indented further: newer versions of Python take the indentation away.
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    doc = ast.get_docstring(node, clean=False) or ""  # type: ignore[arg-type]
    paragraphs = [part for part in doc.split("\n\n") if not part.startswith(" " * 8)]
    return " ".join(" ".join(paragraphs).split())


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def type_of(getter: Any) -> str:
    """The type of a property as the source has it: how types are printed differs between versions of Python."""
    source = textwrap.dedent(inspect.getsource(getter))
    (function,) = ast.parse(source).body
    return ast.get_source_segment(source, function.returns) or ""  # type: ignore[attr-defined]


def signature_of(name: str, function: Any) -> str:
    parts = []
    is_keyword = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            parts.append("*")
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parts.append(f"{star}{parameter.name}{default}")
    return f"{name}({', '.join(parts)})"


def members(kind: Any) -> Iterator[Tuple[str, Any]]:
    """The members of a class and of those that it is made of, in the order of the source; an own one comes before an inherited one."""
    found: Dict[str, Any] = {}
    for base in reversed(kind.__mro__[:-1]):
        if base.__module__.startswith("larder"):
            found.update(vars(base))
    for name, value in found.items():
        if not name.startswith("_") or name in OPERATORS:
            yield name, value


def rows_of(kind: Any) -> List[str]:
    rows, operators = [], []
    for name, value in members(kind):
        if isinstance(value, property):
            settable = ", may be set" if value.fset else ""
            annotation = type_of(value.fget)
            rows.append(f"| `{name}` | `{cell(annotation)}`{settable} | {cell(of_doc(value))} |")
        elif name in OPERATORS:
            operators.append(OPERATORS[name])
        elif inspect.isfunction(value):
            rows.append(f"| `{cell(signature_of(name, value))}` | | {cell(of_doc(value))} |")
    if operators:
        rows.append(f"| operators | | {cell('; '.join(text.rstrip('.') for text in operators))}. |")
    return rows


def attributes_of(kind: Any) -> List[str]:
    """The attributes that `__init__` sets, each with the docstring below it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    rows = []
    for line, below in zip(body, [*body[1:], None]):
        if not isinstance(line, ast.AnnAssign) or line.target.attr.startswith("_"):  # type: ignore[union-attr]
            continue
        name = line.target.attr  # type: ignore[union-attr]
        is_doc = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        assert is_doc, f"{kind.__name__}.{name} has no docstring below it"
        annotation = ast.get_source_segment(inspect_source(kind), line.annotation) or ""
        rows.append(f"| `{name}` | `{cell(annotation)}` | {cell(' '.join(below.value.value.split()))} |")  # type: ignore[union-attr]
    return rows


def inspect_source(kind: Any) -> str:
    return textwrap.dedent(inspect.getsource(kind.__init__))


def page() -> str:
    parts = [HEAD]
    table = ["| attribute or method | type | |", "|---|---|---|"]
    for title, kind in CLASSES:
        rows = rows_of(kind)
        if kind is larder.Response:
            rows.insert(0, f"| `{cell(signature_of('larder.Response', kind))}` | | {cell(prose_of(kind))} |")
        parts.append("\n".join([f"## {title}\n", f"`larder.{kind.__name__}`. {of_doc(kind)}\n", *table, *rows]) + "\n")
    functions = [larder.redirect, larder.deny, larder.pass_, larder.miss]
    rows = [f"| `{cell(signature_of(f'larder.{each.__name__}', each))}` | {cell(prose_of(each))} |" for each in functions]
    parts.append("\n".join(["## Values that hooks return\n", "| function | |", "|---|---|", *rows]) + "\n")
    decorators = [larder.request, larder.page, larder.found, larder.fetched, larder.respond]
    rows = [f"| `@larder.{each.__name__}` | {cell(prose_of(each))} |" for each in decorators]
    filters = ", ".join(f"`{name}`" for name in _definitions._FILTERS)
    parts.append("\n".join(["## Decorators\n", f"Each takes {filters} where they make sense.\n", "| decorator | |", "|---|---|", *rows]) + "\n")
    rows = attributes_of(testing.Decision) + rows_of(testing.Decision)
    parts.append("\n".join(["## `Decision`, in tests\n", f"`larder.testing.call(…)` returns it. {of_doc(testing.Decision)}\n", *table, *rows]) + "\n")
    rows = [f"| `{cell(signature_of(each.__name__, each))}` | {cell(prose_of(each))} |" for each in (testing.call, testing.load)]
    parts.append("\n".join(["## `larder.testing`\n", "| function | |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


class Reference(unittest.TestCase):
    def test_the_page_is_that_of_the_code(self) -> None:
        made = page()
        if os.environ.get("UPDATE_EXPECTED"):
            with open(PAGE, "w", encoding="utf-8") as file:
                file.write(made)
        with open(PAGE, encoding="utf-8") as file:
            said = file.read()
        self.assertEqual(said, made, "UPDATE_EXPECTED=1 python3 -m unittest discover -s python/tests -p test_reference.py writes it anew")
