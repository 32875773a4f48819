"""No mask for a single new token: it may look at all that is held."""

import libcst as cst

from reforward.propose.edit import function
from reforward.propose.match import Rule, rewrite
from reforward.propose.passes.base import Pass, on_entry
from reforward.propose.passes.decoder import CAUSAL_MASK
from reforward.propose.shape import function_like

SKIP = Rule(
    before="ANY_mask = causal_mask(ANY_segment, ANY_window, ANY_device)",
    after="""
ANY_mask = (
    causal_mask(ANY_segment, ANY_window, ANY_device) if ANY_segment.length > 1 or ANY_window is not None else None
)
""",
)


def change(module: cst.Module) -> cst.Module | None:
    """Only where the mask is the causal one, all true for one token without a window."""
    if function_like(function(module, "causal_mask"), CAUSAL_MASK) is None:
        return None
    changed, hits = rewrite(module, SKIP)
    return changed if hits else None


IMPLICIT_MASK = Pass(
    name="implicit-mask",
    reason="build no causal mask for a single new token, which may look at everything that is held",
    apply=on_entry(change),
    rank=0.05,
)
