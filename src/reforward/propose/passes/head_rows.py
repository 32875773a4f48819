"""The head only where its rows are wanted: most tokens of a prefill need no logits."""

import libcst as cst

from reforward.propose.match import Rule, rewrite
from reforward.propose.passes.base import Pass, on_entry

SELECT_FIRST = Rule(
    before="ANY_logits.copy_(linear(ANY_x, ANY_head)[ANY_rows])",
    after="ANY_logits.copy_(linear(ANY_x[ANY_rows], ANY_head))",
)


def change(module: cst.Module) -> cst.Module | None:
    """Index rows before a product instead of after it."""
    changed, hits = rewrite(module, SELECT_FIRST)
    return changed if hits else None


HEAD_ROWS = Pass(
    name="head-rows",
    reason="select the wanted rows before the head instead of after it, so that prefill computes one row of logits",
    apply=on_entry(change),
    rank=0.3,
)
