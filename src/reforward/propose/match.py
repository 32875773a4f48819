"""Semantic patches: find code by its shape, with holes, and put other code in its place.

A shape is ordinary Python in which names that begin with `ANY_` stand for any expression, the same one each time.
Layout, comments, annotations and brackets do not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from textwrap import dedent
from typing import TypeVar, cast

import libcst as cst

HOLE = "ANY_"
Found = dict[str, cst.BaseExpression]
Line = cst.BaseStatement | cst.SimpleStatementLine
Node = TypeVar("Node", bound=cst.CSTNode)

_LAYOUT = ("whitespace", "lines", "leading", "trailing", "header", "footer", "comma", "lpar", "rpar", "semicolon")
_IGNORED = {"annotation", "returns", "indent", "default_indent", "encoding", "equal", "lbracket", "rbracket"}


@cache
def _compared(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    names = [field.name for field in fields(kind)]
    return tuple(n for n in names if n not in _IGNORED and not any(part in n for part in _LAYOUT))


def same(shape: object, code: object, found: Found) -> bool:
    """Whether `code` has this shape; fills `found` with what the holes stand for."""
    if isinstance(shape, cst.Name) and shape.value.startswith(HOLE):
        if not isinstance(code, cst.BaseExpression):
            return False
        known = found.setdefault(shape.value, code)
        return known is code or same(known, code, {})
    if isinstance(shape, cst.CSTNode):
        if type(shape) is not type(code):
            return False
        return all(same(getattr(shape, name), getattr(code, name), found) for name in _compared(type(shape)))
    if isinstance(shape, list | tuple):
        return _same_list(cast(Sequence[object], shape), code, found)
    return shape == code


def _same_list(shape: Sequence[object], code: object, found: Found) -> bool:
    if not isinstance(code, list | tuple):
        return False
    other = cast(Sequence[object], code)
    return len(shape) == len(other) and all(same(a, b, found) for a, b in zip(shape, other, strict=True))


_LOOSE = (cst.BinaryOperation, cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.IfExp, cst.Lambda)
_OPEN = (cst.Arg, cst.Assign, cst.AugAssign, cst.Return, cst.Element, cst.Index)


class _Fill(cst.CSTTransformer):
    """Puts what was found into holes, in brackets where it might bind less tightly than its new neighbours."""

    def __init__(self, found: Found) -> None:
        self.found = found

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        found = self.found.get(original_node.value, updated_node)
        if isinstance(found, _LOOSE) and not found.lpar:
            return found.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return found

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> object:
        updated = super().on_leave(cast(cst.Name, original_node), cast(cst.Name, updated_node))
        if isinstance(updated, _OPEN) and isinstance(updated.value, _LOOSE):
            hole = cast(cst.Arg, original_node).value
            return updated.with_changes(
                value=self.found.get(hole.value, hole) if isinstance(hole, cst.Name) else updated.value
            )
        return updated


def fill(template: Node, found: Found) -> Node:
    """The template with every hole replaced by what was found for it."""
    return cast(Node, template.visit(_Fill(found)))


def statements(text: str) -> tuple[Line, ...]:
    """Parse a few lines of Python, indented as the reader likes."""
    return tuple(cst.parse_module(dedent(text).strip("\n") + "\n").body)


def code_of(node: cst.CSTNode) -> str:
    """The text of a node."""
    return cst.Module(body=()).code_for_node(node)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Replace consecutive statements, or one expression, of one shape by another."""

    before: str
    after: str

    def lines(self) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
        """Both sides as statements."""
        return statements(self.before), statements(self.after)

    def expression(self) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
        """Both sides as expressions, or None if the rule is about statements."""
        try:
            return cst.parse_expression(dedent(self.before).strip()), cst.parse_expression(dedent(self.after).strip())
        except cst.ParserSyntaxError:
            return None


class _Lines(cst.CSTTransformer):
    """Replaces windows of statements."""

    def __init__(self, rule: Rule) -> None:
        self.before, self.after = rule.lines()
        self.hits = 0

    def _patch(self, body: Sequence[Line]) -> list[Line]:
        out: list[Line] = []
        at = 0
        while at < len(body):
            found: Found = {}
            if same(self.before, tuple(body[at : at + len(self.before)]), found):
                out += [fill(line, found) for line in self.after]
                at += len(self.before)
                self.hits += 1
            else:
                out.append(body[at])
                at += 1
        return out

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> cst.BaseSuite:
        return updated_node.with_changes(body=self._patch(updated_node.body))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return updated_node.with_changes(body=self._patch(updated_node.body))


class _Expressions(cst.CSTTransformer):
    """Replaces expressions, innermost first."""

    def __init__(self, before: cst.BaseExpression, after: cst.BaseExpression) -> None:
        self.before, self.after = before, after
        self.hits = 0

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        found: Found = {}
        if not same(self.before, updated_node, found):
            return updated_node
        self.hits += 1
        return fill(self.after, found)


def rewrite(code: Node, rule: Rule) -> tuple[Node, int]:
    """Apply a rule wherever it matches; returns the code and how many places changed."""
    pair = rule.expression()
    patch = _Expressions(*pair) if pair else _Lines(rule)
    return cast(Node, code.visit(patch)), patch.hits


def search(code: cst.CSTNode, shape: str) -> list[Found]:
    """What the holes stand for at every place, in order of the text, where consecutive statements have this shape."""
    lines = statements(shape)
    places: list[Found] = []

    class Visit(cst.CSTVisitor):
        def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
            for at in range(len(node.body) - len(lines) + 1):
                found: Found = {}
                if same(lines, tuple(node.body[at : at + len(lines)]), found):
                    places.append(found)

    code.visit(Visit())
    return places
