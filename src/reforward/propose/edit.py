"""Small edits of a module's text: functions, methods, imports, the end of `__init__`."""

import sys
from collections.abc import Callable
from typing import cast

import libcst as cst

from reforward.propose.match import Line, code_of, statements


def function(module: cst.Module, name: str) -> cst.FunctionDef | None:
    """The module-level function with this name, if its statements have lines of their own."""
    return next((n for n in module.body if isinstance(n, cst.FunctionDef) and _is(n, name)), None)


def class_of(module: cst.Module, name: str) -> cst.ClassDef | None:
    """The module-level class with this name, if its statements have lines of their own."""
    return next((n for n in module.body if isinstance(n, cst.ClassDef) and _is(n, name)), None)


def method(module: cst.Module, owner: str, name: str) -> cst.FunctionDef | None:
    """A method of a module-level class, if its statements have lines of their own."""
    found = class_of(module, owner)
    body = found.body.body if found else ()
    return next((n for n in body if isinstance(n, cst.FunctionDef) and _is(n, name)), None)


def _is(code: cst.FunctionDef | cst.ClassDef, name: str) -> bool:
    """Code on the line of its `def` cannot take another statement."""
    return code.name.value == name and isinstance(code.body, cst.IndentedBlock)


def body_of(code: cst.FunctionDef) -> tuple[Line, ...]:
    """Statements of a function, without its docstring."""
    body = cast(tuple[Line, ...], tuple(code.body.body))
    return body[1:] if body and _is_text(body[0]) else body


def parameters(code: cst.FunctionDef) -> tuple[str, ...]:
    """Names of the positional parameters."""
    return tuple(parameter.name.value for parameter in code.params.params)


def _is_text(line: Line) -> bool:
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return False
    first = line.body[0]
    return isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString | cst.ConcatenatedString)


def with_body(code: cst.FunctionDef, change: Callable[[list[Line]], list[Line]]) -> cst.FunctionDef:
    """The function with its statements, docstring apart, changed."""
    body = cast(tuple[Line, ...], tuple(code.body.body))
    kept = body[: len(body) - len(body_of(code))]
    return code.with_changes(body=code.body.with_changes(body=[*kept, *change(list(body_of(code)))]))


def replace(module: cst.Module, old: cst.CSTNode, new: cst.CSTNode) -> cst.Module:
    """The module with one node exchanged. All nodes of the result are new: look them up again."""
    return cast(cst.Module, module.deep_replace(old, new))


def append_to_init(module: cst.Module, owner: str, text: str) -> cst.Module:
    """The class's `__init__` with statements at its end."""
    init = method(module, owner, "__init__")
    assert init is not None, f"{owner} has no __init__"
    return replace(module, init, with_body(init, lambda body: [*body, *statements(text)]))


def prepend_to(module: cst.Module, owner: str, name: str, text: str) -> cst.Module:
    """A method with statements before its own, after its docstring."""
    found = method(module, owner, name)
    assert found is not None, f"{owner} has no {name}"
    return replace(module, found, with_body(found, lambda body: [*statements(text), *body]))


def add_method(module: cst.Module, owner: str, text: str, *, before: str | None = None) -> cst.Module:
    """A method added to a class: at its end, or before the method `before`."""
    found = class_of(module, owner)
    assert found is not None, f"no class {owner}"
    body = cast(list[Line], list(found.body.body))
    at = len(body)
    if before is not None:
        at = next(i for i, line in enumerate(body) if isinstance(line, cst.FunctionDef) and line.name.value == before)
    added = [line.with_changes(leading_lines=[cst.EmptyLine(indent=False)]) for line in statements(text)]
    changed = found.with_changes(body=found.body.with_changes(body=[*body[:at], *added, *body[at:]]))
    return replace(module, found, changed)


def add_import(module: cst.Module, text: str) -> cst.Module:
    """An import after the last one of its kind, standard library or not; nothing if the module has it."""
    line = statements(text)[0]
    body = cast(list[Line], list(module.body))
    if any(code_of(line).strip() == code_of(other).strip() for other in body if _is_import(other)):
        return module
    kind = _standard(line)
    imports = [i for i, other in enumerate(body) if _is_import(other)]
    alike = [i for i in imports if _standard(body[i]) == kind] or imports
    at = alike[-1] + 1 if alike else len(body) and int(_is_text(body[0]))
    return module.with_changes(body=[*body[:at], line, *body[at:]])


def _standard(line: Line) -> bool:
    words = code_of(line).split()
    return words[1].partition(".")[0] in sys.stdlib_module_names


def _is_import(line: Line) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Import | cst.ImportFrom)
