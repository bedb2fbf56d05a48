"""Small changes of a module, each of which some test must notice."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

__all__ = ["Mutant", "mutants_of"]

_ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Div(), ast.Div: ast.Mult(), ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.Mult(), ast.Pow: ast.Mult(), ast.BitAnd: ast.BitOr(), ast.BitOr: ast.BitAnd(),
    ast.BitXor: ast.BitOr(), ast.LShift: ast.RShift(), ast.RShift: ast.LShift(),
}  # fmt: skip

_BOUNDARY: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE(), ast.GtE: ast.Gt(),
}  # fmt: skip

_OPPOSITE: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.GtE(), ast.LtE: ast.Gt(), ast.Gt: ast.LtE(), ast.GtE: ast.Lt(), ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(), ast.Is: ast.IsNot(), ast.IsNot: ast.Is(), ast.In: ast.NotIn(), ast.NotIn: ast.In(),
}  # fmt: skip

_PAIRS = (
    ("min", "max"), ("any", "all"), ("minimum", "maximum"), ("argmin", "argmax"), ("floor", "ceil"),
    ("zeros_like", "ones_like"), ("zeros", "ones"), ("isfinite", "isnan"), ("set", "clear"), ("append", "insert"),
)  # fmt: skip
_OTHER_NAME = {**dict(_PAIRS), **{right: left for left, right in _PAIRS}}

_SAFEGUARDS = (None, "strict", "copy")
"""Arguments that no behaviour depends on: zip's check of our own lengths, and NumPy's of whether a copy is needed."""

_KEY = re.compile(r"[a-z][a-z_]*")
"""A string that code goes by, such as an option's name; all others are wording."""


@dataclass
class Mutant:
    """One small change of a module.

    Attributes:
        module: the path of its source, relative to the repository.
        function: the qualified name of the function that the change is in; empty outside of functions.
        original, mutated: source text before and after the change.
        occurrence: 1 for the first change of this text to that in the function, 2 for the second.
        first_line, last_line: of the changed statement.
        at_import: whether the changed code runs when the module is imported.
    """

    module: str
    function: str
    original: str
    mutated: str
    occurrence: int
    first_line: int
    last_line: int
    at_import: bool
    _tree: ast.Module
    _parent: Any
    _field: str
    _index: int | None
    _new: ast.AST

    @property
    def key(self) -> str:
        """The name of the change, which does not depend on lines."""
        again = f" #{self.occurrence}" if self.occurrence > 1 else ""
        return f"{self.function or '<module>'}: {self.original}  =>  {self.mutated}{again}"

    def compile(self, path: Path) -> CodeType:
        """Return the code of the changed module."""
        with self._applied():
            return compile(self._tree, str(path), "exec", dont_inherit=True)

    @contextmanager
    def _applied(self) -> Iterator[None]:
        old = _get(self._parent, self._field, self._index)
        _set(self._parent, self._field, self._index, self._new)
        try:
            yield
        finally:
            _set(self._parent, self._field, self._index, old)


def _get(parent: ast.AST, field: str, index: int | None) -> Any:
    value = getattr(parent, field)
    return value if index is None else value[index]


def _set(parent: ast.AST, field: str, index: int | None, value: ast.AST) -> None:
    if index is None:
        setattr(parent, field, value)
    else:
        getattr(parent, field)[index] = value


def mutants_of(path: Path, module: str) -> list[Mutant]:
    """Return all changes of a module, in the order of its source.

    Not changed are annotations, decorators, messages, what is logged, and imports.
    """
    tree = ast.parse(path.read_text())
    finder = _Finder(tree, module)
    finder.visit(tree, _Place())
    return finder.mutants


@dataclass(frozen=True)
class _Place:
    """The place of a node: the names around it, its function and its statement."""

    scope: tuple[str, ...] = ()
    function: str = ""
    statement: ast.stmt | None = None
    is_message: bool = False


class _Finder:
    def __init__(self, tree: ast.Module, module: str) -> None:
        self._tree, self._module = tree, module
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self.mutants: list[Mutant] = []

    def visit(self, node: ast.AST, place: _Place) -> None:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "bases", "ctx", "type_params"):
                continue
            children = value if isinstance(value, list) else [value]
            for index, child in enumerate(children):
                if isinstance(child, ast.AST):
                    self._child(node, field, index if isinstance(value, list) else None, child, place)

    def _child(self, parent: ast.AST, field: str, index: int | None, child: ast.AST, place: _Place) -> None:
        if isinstance(child, (ast.Import, ast.ImportFrom, ast.JoinedStr)) or _is_docstring(child) or _is_all(child):
            return
        if isinstance(child, ast.stmt):
            place = _Place(place.scope, place.function, child)
        for new in _changes(parent, field, child, place):
            self._add(parent, field, index, child, new, place)
        inner = place
        if isinstance(child, ast.ClassDef):
            inner = _Place((*place.scope, child.name), place.function, child)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = (*place.scope, child.name)
            inner = _Place(scope, ".".join(scope), child)
        elif isinstance(child, ast.Raise) or _is_log_call(child):
            inner = _Place(place.scope, place.function, place.statement, is_message=True)
        if isinstance(child, ast.arguments):  # defaults are made where the function is, not in it
            for part in ("defaults", "kw_defaults"):
                for number, default in enumerate(getattr(child, part)):
                    for new in _changes(child, part, default, place) if default is not None else ():
                        self._add(child, part, number, default, new, place, at_import=True)
            return
        self.visit(child, inner)

    def _add(
        self,
        parent: ast.AST,
        field: str,
        index: int | None,
        old: ast.AST,
        new: ast.AST,
        place: _Place,
        at_import: bool = False,
    ) -> None:
        new = ast.fix_missing_locations(ast.copy_location(new, old))
        texts = _text(old), _text(new)
        if texts[0] == texts[1]:
            return
        name = (place.function or ".".join(place.scope), *texts)
        self._seen[name] += 1
        assert place.statement is not None
        lines = _lines(place.statement)
        where = self._tree, parent, field, index, new
        at_import = at_import or not place.function
        self.mutants.append(Mutant(self._module, *name, self._seen[name], *lines, at_import, *where))


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """Return the lines of a statement, without those of the statements in it."""
    bodies = [getattr(statement, name, None) for name in ("body", "orelse", "handlers", "finalbody")]
    inner = [body[0].lineno for body in bodies if isinstance(body, list) and body]
    last = min(inner) - 1 if inner else statement.end_lineno or statement.lineno
    return statement.lineno, max(last, statement.lineno)


def _text(node: ast.AST) -> str:
    """Return the first line of a node's source, and all of it for what has no body."""
    text = ast.unparse(node)
    return text.split("\n")[0] if isinstance(node, (ast.If, ast.While, ast.For, ast.With)) else text


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_all(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and _text(node.targets[0]) == "__all__"


def _is_log_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and re.search(r"\b_?log\.\w+$", _text(node.func)) is not None


def _changes(parent: ast.AST, field: str, node: ast.AST, place: _Place) -> Iterator[ast.AST]:
    """Yield what a node may be replaced by."""
    if isinstance(node, ast.stmt):
        if place.function and not _is_sole_body(parent, field):
            yield from _without(node)
        yield from _changed_statement(node)
    elif isinstance(node, ast.expr):
        if (field == "test" and isinstance(parent, (ast.If, ast.While))) or field == "ifs":
            yield ast.Constant(False)
            if not isinstance(parent, ast.While):
                yield ast.Constant(True)
        yield from _changed_expression(parent, field, node, place)


def _is_sole_body(parent: ast.AST, field: str) -> bool:
    """Return whether the removal of a statement is the same as a condition that is never true."""
    return isinstance(parent, ast.If) and field == "body" and len(parent.body) == 1 and not parent.orelse


def _without(node: ast.stmt) -> Iterator[ast.AST]:
    removable = (ast.Assign, ast.AugAssign, ast.Raise, ast.Delete)
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if isinstance(node, removable) or is_call or (isinstance(node, ast.AnnAssign) and node.value):
        yield ast.Pass()


def _changed_statement(node: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield ast.AugAssign(node.target, _ARITHMETIC[type(node.op)], node.value)
    elif isinstance(node, ast.Return) and node.value and _text(node.value) not in ("None", "True", "False"):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.For):
        yield ast.For(node.target, ast.Tuple([], ast.Load()), node.body, node.orelse)


def _changed_expression(parent: ast.AST, field: str, node: ast.expr, place: _Place) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant):
        yield from _changed_constant(parent, node, place)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_type(node, place):
        yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)], node.right)
    elif isinstance(node, ast.Compare):
        is_test = (field == "test" and isinstance(parent, (ast.If, ast.While))) or field == "ifs"
        yield from _changed_comparison(node, is_test)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        for number in range(len(node.values)):
            rest = [*node.values[:number], *node.values[number + 1 :]]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.Call) and not _is_log_call(node):
        yield from _changed_call(node)


def _is_type(node: ast.BinOp, place: _Place) -> bool:
    return isinstance(node.op, ast.BitOr) and not place.function


def _changed_constant(parent: ast.AST, node: ast.Constant, place: _Place) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        if not (isinstance(parent, ast.keyword) and parent.arg in _SAFEGUARDS):
            yield ast.Constant(not value)
    elif isinstance(value, int):
        yield from (ast.Constant(value + 1), ast.Constant(value - 1))
    elif isinstance(value, float):
        yield from (ast.Constant(2 * value), ast.Constant(value / 2)) if value else (ast.Constant(1.0),)
    elif isinstance(value, str) and place.function and not place.is_message and _KEY.fullmatch(value):
        yield ast.Constant(value + "_")


def _changed_comparison(node: ast.Compare, is_test: bool) -> Iterator[ast.AST]:
    for number, operator in enumerate(node.ops):
        tables = (_BOUNDARY,) if is_test and len(node.ops) == 1 else (_BOUNDARY, _OPPOSITE)
        for table in tables:
            if type(operator) in table:
                operators = [*node.ops[:number], table[type(operator)], *node.ops[number + 1 :]]
                yield ast.Compare(node.left, operators, node.comparators)


def _changed_call(node: ast.Call) -> Iterator[ast.AST]:
    again = partial(ast.Call, node.func)
    if isinstance(node.func, ast.Name) and node.func.id in _OTHER_NAME:
        yield ast.Call(ast.Name(_OTHER_NAME[node.func.id], ast.Load()), node.args, node.keywords)
    if isinstance(node.func, ast.Attribute):
        if node.func.attr in _OTHER_NAME:
            other = ast.Attribute(node.func.value, _OTHER_NAME[node.func.attr], ast.Load())
            yield ast.Call(other, node.args, node.keywords)
        if node.func.attr == "copy" and not node.args:
            yield node.func.value
    if isinstance(node.func, ast.Name) and node.func.id in ("abs", "dict") and len(node.args) == 1:
        yield node.args[0]
    is_symmetric = _text(node.func) in ("min", "max", "np.minimum", "np.maximum", "isinstance")
    if not is_symmetric and not any(isinstance(argument, ast.Starred) for argument in node.args):
        for number in range(len(node.args) - 1):
            swapped = list(node.args)
            swapped[number : number + 2] = node.args[number + 1], node.args[number]
            yield again(swapped, node.keywords)
    for number, keyword in enumerate(node.keywords):
        if keyword.arg not in _SAFEGUARDS:
            yield again(node.args, [*node.keywords[:number], *node.keywords[number + 1 :]])
