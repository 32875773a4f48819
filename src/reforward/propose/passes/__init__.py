"""Mechanical passes, one per file; see `base.py`."""

from reforward.propose.passes.base import Pass
from reforward.propose.passes.compiled import COMPILED_LAYERS, COMPILED_MODULE
from reforward.propose.passes.copies import NO_COPIES
from reforward.propose.passes.fused_norm import FUSED_NORM
from reforward.propose.passes.fused_products import FUSED_PRODUCTS
from reforward.propose.passes.grouped_attention import GROUPED_ATTENTION
from reforward.propose.passes.head_rows import HEAD_ROWS
from reforward.propose.passes.implicit_mask import IMPLICIT_MASK
from reforward.propose.passes.in_place import IN_PLACE
from reforward.propose.passes.memoised import MEMOISED
from reforward.propose.passes.native_linear import NATIVE_LINEAR
from reforward.propose.passes.native_step import NATIVE_STEP
from reforward.propose.passes.rope_tables import ROPE_TABLES
from reforward.propose.passes.threads import ONE_THREAD

PASSES: tuple[Pass, ...] = (
    NATIVE_STEP,
    NATIVE_LINEAR,
    GROUPED_ATTENTION,
    HEAD_ROWS,
    FUSED_PRODUCTS,
    FUSED_NORM,
    IMPLICIT_MASK,
    ROPE_TABLES,
    IN_PLACE,
    MEMOISED,
    NO_COPIES,
    ONE_THREAD,
    COMPILED_LAYERS,
    COMPILED_MODULE,
)
"""In the order in which several are applied to one candidate."""
