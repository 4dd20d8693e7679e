"""Assertions of tests that tell the values on both sides."""

import ast
import sys
from types import ModuleType
from typing import Any, List, Optional, Union

_SHOWN_LENGTH_MAX = 2000
_OPERATORS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
# Names that no source can have, so that they hide nothing of a test's.
_LEFT, _RIGHT, _VALUE, _FAILED = "@larder_left", "@larder_right", "@larder_value", "@larder_failed"


class _Rewriter(ast.NodeTransformer):
    """Puts statements that keep the values in the place of `assert`."""

    def visit_Assert(self, node: ast.Assert) -> List[ast.stmt]:
        statements = self._checks(node.test, node.msg)
        for statement in statements:
            ast.copy_location(statement, node)
            ast.fix_missing_locations(statement)
        return statements

    def _checks(self, test: ast.expr, message: Optional[ast.expr]) -> List[ast.stmt]:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return [statement for value in test.values for statement in self._checks(value, message)]
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            compared = ast.Compare(_load(_LEFT), test.ops, [_load(_RIGHT)])
            operator = ast.Constant(_OPERATORS[type(test.ops[0])])
            return [
                _store(_LEFT, test.left),
                _store(_RIGHT, test.comparators[0]),
                _raise_unless(compared, [operator, _load(_LEFT), _load(_RIGHT)], message),
            ]
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            negated = ast.UnaryOp(ast.Not(), _load(_VALUE))
            return [_store(_VALUE, test.operand), _raise_unless(negated, [ast.Constant(None), _load(_VALUE)], message)]
        return [_store(_VALUE, test), _raise_unless(_load(_VALUE), [ast.Constant(None), _load(_VALUE)], message)]


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _store(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _raise_unless(test: ast.expr, values: List[ast.expr], message: Optional[ast.expr]) -> ast.stmt:
    keywords = [] if message is None else [ast.keyword("message", message)]
    failed = ast.Call(_load(_FAILED), values, keywords)
    return ast.If(ast.UnaryOp(ast.Not(), test), [ast.Raise(failed, None)], [])


def _failed(operator: Optional[str], left: Any, right: Any = None, message: Any = None) -> AssertionError:
    """Make the exception of an assertion that does not hold."""
    lines = [] if message is None else [str(message)]
    if operator is None:
        lines.append(f"the value is {_shown(left)}")
    else:
        lines += [f"left   {_shown(left)}", f"right  {_shown(right)}"]
        if operator == "==" and isinstance(left, (str, bytes)) and type(left) is type(right):
            at = next((at for at, (one, other) in enumerate(zip(left, right)) if one != other), min(len(left), len(right)))
            lines.append(f"they differ from character {at} on" if at else "they differ from the first character on")
    return AssertionError("\n".join(lines))


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        return f"a {type(value).__name__} whose repr() raises {type(error).__name__}"
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}… ({len(text)} characters)"


def run_module(path: str, name: str) -> ModuleType:
    """Run a file as a module with such assertions. Exceptions of the file pass."""
    with open(path, "rb") as file:
        source: Union[bytes, ast.AST] = file.read()
    tree = _Rewriter().visit(ast.parse(source, path))
    module = ModuleType(name)
    module.__file__ = path
    vars(module)[_FAILED] = _failed
    sys.modules[name] = module
    exec(compile(tree, path, "exec", dont_inherit=True), vars(module))
    return module
