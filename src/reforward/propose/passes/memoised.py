"""Tensors that depend on numbers alone, made once: functions of ints and floats that build constants."""

import re

import libcst as cst

from reforward.propose.edit import add_import, body_of, replace
from reforward.propose.match import code_of
from reforward.propose.passes.base import Pass, on_all

MAKERS = re.compile(r"\btorch\.(arange|linspace|logspace|full|ones|zeros|eye|tensor|hann_window|hamming_window)\(")
IMPURE = re.compile(
    r"rand|empty|generator|global |nonlocal |yield|await|print\(|\w_\(|self\.\w+(\[[^]]*\])? ?[-+*/]?= "
)
CALLED = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)\(")
ALLOWED = re.compile(r"(torch|math|F)\.[\w.]+|int|float|bool|max|min|len|range|abs|round|tuple|list|str")
NUMBERS = {"int", "float", "bool", "str"}
SETTINGS = {"device", "dtype"}
PLAIN = re.compile(r"(int|float|bool|str|max|min|len|round)\(.*\)|-?\d[\d.e-]*|True|False|None", re.DOTALL)


class _Candidates(cst.CSTVisitor):
    """Functions whose result depends on numbers alone, with the class that they belong to."""

    def __init__(self) -> None:
        self.owner: cst.ClassDef | None = None
        self.found: list[cst.FunctionDef] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.owner = node

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self.owner = None

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        if not node.decorators and numbers_only(node) and pure(node, self.owner):
            self.found.append(node)
        return False


def numbers_only(code: cst.FunctionDef) -> bool:
    """Every parameter is annotated as a number or is a device or dtype: it can be the key of a cache."""
    given = [p for p in (*code.params.params, *code.params.kwonly_params) if p.name.value != "self"]
    starred = isinstance(code.params.star_arg, cst.Param) or code.params.star_kwarg is not None
    return not starred and all(
        p.name.value in SETTINGS or (p.annotation and code_of(p.annotation.annotation) in NUMBERS) for p in given
    )


def pure(code: cst.FunctionDef, owner: cst.ClassDef | None) -> bool:
    """It builds tensors from constants, calls nothing unknown, and of `self` reads plain numbers alone."""
    text = "".join(code_of(line) for line in body_of(code))
    if not MAKERS.search(text) or IMPURE.search(text):
        return False
    if not all(ALLOWED.fullmatch(name) for name in CALLED.findall(text)):
        return False
    return set(re.findall(r"\bself\.(\w+)", text)) <= numbers_of(owner)


def numbers_of(owner: cst.ClassDef | None) -> set[str]:
    """Attributes that a class assigns once, in `__init__`, and there a plain number."""
    text = code_of(owner) if owner else ""
    assigned = re.findall(r"^ +self\.(\w+)(?:: \w+)? = (.+)$", text, re.MULTILINE)
    names = [name for name, _ in assigned]
    return {name for name, value in assigned if names.count(name) == 1 and PLAIN.fullmatch(value)}


def change(module: cst.Module) -> cst.Module | None:
    """Put `functools.cache` on each of them; equal arguments then give the same tensor."""
    visit = _Candidates()
    module.visit(visit)
    if not visit.found:
        return None
    mark = cst.Decorator(decorator=cst.parse_expression("functools.cache"))
    for name in [code.name.value for code in visit.found]:
        again = _Candidates()
        module.visit(again)
        code = next(found for found in again.found if found.name.value == name)
        module = replace(module, code, code.with_changes(decorators=[mark]))
    return add_import(module, "import functools")


MEMOISED = Pass(
    name="memoised-constants",
    reason="make tensors that depend on numbers alone once instead of in every call",
    apply=on_all(change),
    bits="same",
    rank=0.03,
)
