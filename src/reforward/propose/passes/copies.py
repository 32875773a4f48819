"""Copies that nothing needs: `contiguous` and `clone` on tensors that are read only."""

import libcst as cst

from reforward.propose.edit import class_of, replace
from reforward.propose.match import Rule, rewrite
from reforward.propose.passes.base import Pass, on_all

RULES = (
    Rule(before="ANY_x.contiguous()", after="ANY_x"),
    Rule(before="ANY_x.clone()", after="ANY_x"),
)


def change(module: cst.Module) -> cst.Module | None:
    """Drop them in methods; where a copy was needed after all, outputs differ or the call fails, and the judge says so.

    A module that hands out pointers is left alone: they need their tensors contiguous.
    """
    if ".data_ptr(" in module.code:
        return None
    hits = 0
    for name in [line.name.value for line in module.body if isinstance(line, cst.ClassDef)]:
        for rule in RULES:
            owner = class_of(module, name)
            if owner is None:
                continue
            changed, more = rewrite(owner, rule)
            module, hits = replace(module, owner, changed) if more else module, hits + more
    return module if hits else None


NO_COPIES = Pass(
    name="no-copies",
    reason="drop contiguous() and clone() where tensors are only read",
    apply=on_all(change),
    bits="maybe",
    rank=0.02,
)
