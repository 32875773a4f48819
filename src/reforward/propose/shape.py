"""Whether a function has a known shape whatever its locals are called, and what an expression in it stands for."""

from collections.abc import Mapping
from typing import cast

import libcst as cst

from reforward.propose.edit import body_of, parameters
from reforward.propose.match import HOLE, Found, Line, code_of, same, statements


class _Bound(cst.CSTVisitor):
    """Names that a function assigns, in order of the text."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._add(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._add(node.target)

    def visit_For(self, node: cst.For) -> None:
        self._add(node.target)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self._add(node.target)

    def _add(self, target: cst.BaseExpression) -> None:
        if isinstance(target, cst.Name):
            self.names.append(target.value)
        elif isinstance(target, cst.Tuple):
            for element in target.elements:
                self._add(element.value)


class _Rename(cst.CSTTransformer):
    """Renames variables, not attributes and not keyword arguments."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return updated_node.with_changes(value=self.names.get(original_node.value, original_node.value))


def plain(code: cst.FunctionDef) -> tuple[tuple[Line, ...], dict[str, str]]:
    """The body with parameters and locals renamed to `v0`, `v1`, ... in order; and the old name of each."""
    bound = _Bound()
    code.visit(bound)
    order = [n for n in dict.fromkeys((*parameters(code), *bound.names)) if n != "self" and not n.startswith(HOLE)]
    names = {name: f"v{index}" for index, name in enumerate(order)}
    renamed = cast(cst.FunctionDef, code.visit(_Rename(names)))
    return body_of(renamed), {new: old for old, new in names.items()}


def function_like(code: cst.FunctionDef | None, shape: str) -> Found | None:
    """What the holes of `shape`, a whole `def`, stand for if `code` does the same; None if it does not.

    Names of the function, its locals and parameters may differ. What is found speaks of the code's parameters alone:
    locals that are assigned once, before anything else, are replaced by what they were assigned.
    """
    if code is None:
        return None
    found: Found = {}
    wanted, _ = plain(cast(cst.FunctionDef, statements(shape)[0]))
    have, old = plain(code)
    if not same(wanted, have, found):
        return None
    known = leading(have)
    return {name: cast(cst.BaseExpression, resolved(node, known).visit(_Rename(old))) for name, node in found.items()}


def leading(body: tuple[Line, ...]) -> dict[str, cst.BaseExpression]:
    """Plain assignments at the start of a body: name to value."""
    known: dict[str, cst.BaseExpression] = {}
    for line in body:
        first = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        if not isinstance(first, cst.Assign) or len(first.targets) != 1:
            break
        target, value = first.targets[0].target, first.value
        if isinstance(target, cst.Name):
            known.setdefault(target.value, value)
        elif isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            for left, right in zip(target.elements, value.elements, strict=False):
                known.setdefault(code_of(left.value), right.value)
        else:
            break
    return known


class _Inline(cst.CSTTransformer):
    def __init__(self, known: Mapping[str, cst.BaseExpression]) -> None:
        self.known = known

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self.known.get(original_node.value, updated_node)

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.BaseExpression:
        parts: list[cst.BaseFormattedStringContent] = []
        for part in updated_node.parts:
            inner = part.expression if isinstance(part, cst.FormattedStringExpression) else None
            parts += inner.parts if isinstance(inner, cst.FormattedString) else [part]
        return updated_node.with_changes(parts=parts)


def resolved(node: cst.BaseExpression, known: Mapping[str, cst.BaseExpression]) -> cst.BaseExpression:
    """The expression with known names replaced by their values, names within those too, f-strings joined."""
    seen = ""
    while (text := code_of(node)) != seen:
        seen = text
        node = cast(cst.BaseExpression, node.visit(_Inline(known)))
    return node
