"""Grouped attention that reads each kv head where it lies, instead of copying it for every query head."""

import libcst as cst

from reforward.propose.edit import function
from reforward.propose.match import Rule, rewrite
from reforward.propose.passes.base import Pass, on_entry
from reforward.propose.passes.decoder import REPEAT_KV
from reforward.propose.shape import function_like

DROP_GROUPS = Rule(
    before="""
ANY_groups = ANY_heads // ANY_kv_heads
ANY_keys, ANY_values = repeat_kv(ANY_keys, ANY_groups), repeat_kv(ANY_values, ANY_groups)
""",
    after="",
)
ATTEND = Rule(
    before="""
ANY_mixed = F.scaled_dot_product_attention(ANY_q.transpose(0, 1), ANY_keys, ANY_values, attn_mask=ANY_mask)
""",
    after="""
ANY_mixed = F.scaled_dot_product_attention(
    ANY_q.transpose(0, 1)[None], ANY_keys[None], ANY_values[None], attn_mask=ANY_mask, enable_gqa=True
)[0]
""",
)


def change(module: cst.Module) -> cst.Module | None:
    """Only where the helper repeats along the first axis and exactly one attention follows."""
    if function_like(function(module, "repeat_kv"), REPEAT_KV) is None:
        return None
    module, dropped = rewrite(module, DROP_GROUPS)
    module, attended = rewrite(module, ATTEND)
    if dropped != 1 or attended != 1:
        return None
    unused = function(module, "repeat_kv")
    return module.with_changes(body=[line for line in module.body if line is not unused])


GROUPED_ATTENTION = Pass(
    name="grouped-attention",
    reason="let attention share each kv head among its query heads instead of copying keys and values for every one",
    apply=on_entry(change),
    rank=0.5,
)
