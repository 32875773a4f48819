"""Residual and gating sums written over an operand that nobody reads again."""

import libcst as cst

from reforward.domain.candidate import Candidate
from reforward.propose.edit import class_of, function, replace
from reforward.propose.match import Rule, rewrite
from reforward.propose.passes.base import Pass, parse
from reforward.propose.passes.decoder import SILU_MUL
from reforward.propose.shape import function_like

RESIDUALS = (
    Rule(
        before="ANY_x = ANY_x + self.attend(ANY_n, ANY_l, ANY_b, ANY_c, ANY_s)",
        after="ANY_x += self.attend(ANY_n, ANY_l, ANY_b, ANY_c, ANY_s)",
    ),
    Rule(before="return ANY_x + linear(ANY_y, ANY_w)", after="return ANY_x.add_(linear(ANY_y, ANY_w))"),
)
GATE = Rule(before="return F.silu(ANY_gate) * ANY_up", after="return F.silu(ANY_gate, inplace=True).mul_(ANY_up)")


def apply(candidate: Candidate) -> Candidate | None:
    """The residual stream of an `lm` forward starts as a fresh embedding, so each layer may overwrite it."""
    module = parse(candidate.text_of(candidate.entry_file) or "")
    owner = class_of(module, candidate.entry_name) if module and candidate.host == "lm" else None
    if module is None or owner is None:
        return None
    changed, hits = owner, 0
    for rule in RESIDUALS:
        changed, more = rewrite(changed, rule)
        hits += more
    if hits == 0:
        return None
    module = _gated(replace(module, owner, changed))
    return candidate.with_files({candidate.entry_file: module.code})


def _gated(module: cst.Module) -> cst.Module:
    gate = function(module, "silu_mul")
    if gate is None or function_like(gate, SILU_MUL) is None:
        return module
    return replace(module, gate, rewrite(gate, GATE)[0])


IN_PLACE = Pass(
    name="in-place",
    reason="add residuals and gate activations in place instead of into new tensors",
    apply=apply,
    bits="same",
    rank=0.01,
)
