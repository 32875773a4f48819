"""Rotary tables made once, looked up by position, instead of angles computed in every call."""

from reforward.domain.candidate import Candidate
from reforward.propose.edit import append_to_init, function, method, replace
from reforward.propose.match import Rule, rewrite
from reforward.propose.passes.base import Pass, parse
from reforward.propose.passes.decoder import ROPE_ANGLES
from reforward.propose.shape import function_like

LOOK_UP = Rule(
    before="ANY_cos, ANY_sin = rope_angles(ANY_positions, ANY_spec, ANY_x.dtype)",
    after="ANY_cos, ANY_sin = self.cos[ANY_positions], self.sin[ANY_positions]",
)
INIT = """
held = torch.arange(build.limits.length, device=build.device)
self.cos, self.sin = rope_angles(held, build.spec, build.dtype)
"""


def apply(candidate: Candidate) -> Candidate | None:
    """Angles depend on the position alone, so the same bits come out of a table."""
    module = parse(candidate.text_of(candidate.entry_file) or "")
    if module is None or function_like(function(module, "rope_angles"), ROPE_ANGLES) is None:
        return None
    step = method(module, candidate.entry_name, "step")
    changed, hits = rewrite(step, LOOK_UP) if step else (None, 0)
    if step is None or changed is None or hits == 0:
        return None
    module = replace(module, step, changed)
    return candidate.with_files({candidate.entry_file: append_to_init(module, candidate.entry_name, INIT).code})


ROPE_TABLES = Pass(
    name="rope-tables",
    reason="build the rotary tables once and look them up, instead of computing angles in every call",
    apply=apply,
    bits="same",
    rank=0.02,
)
