"""The whole step in native code: one C++ call takes a ragged batch of few tokens through the decoder."""

import libcst as cst

from reforward.domain.candidate import Candidate
from reforward.propose.edit import add_import, add_method, append_to_init, prepend_to
from reforward.propose.passes.base import Pass, kernel, parse
from reforward.propose.passes.decoder import decoder_weights

FILES = ("step.cpp", "gemv.h", "math.h", "pool.h", "shares.h", "vector.h", "native_step.py", "build.py")
PER_LAYER = (
    "attention_norm", "q", "k", "v", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm", "o",
    "mlp_norm", "gate", "up", "down", "keys", "values",
)  # fmt: skip
OPTIONAL = ("q_norm", "k_norm")

INIT = """
spec, weights = build.spec, build.weights
positions = torch.arange(build.limits.length, device=build.device)
cos, sin = rope_angles(positions, spec, build.dtype)
layers = [
    {{
{entries}
    }}
    for layer in range(spec.layers)
]
self.decoder = Decoder(
    build,
    layers=layers,
    embedding={embedding},
    final_norm={final_norm},
    head={head},
    cos=cos,
    sin=sin,
)
"""
STEP = """
if self.decoder.takes(batch):
    self.decoder.step(batch, logits)
    return
"""
RUN = '''
def run(
    self, last: Tensor, slots: Tensor, positions: Tensor, steps: int, tokens: Tensor, logits: Tensor, counts: Tensor
) -> None:
    """Greedy steps without the host."""
    self.decoder.run(last, slots, positions, steps, tokens, logits)
    counts.fill_(steps)
'''


def _init(parts: dict[str, str]) -> str:
    named = {name: _local(text) for name, text in parts.items()}
    for name in OPTIONAL:
        named[name] = named[name].replace("weights[", "weights.get(").removesuffix("]") + ")"
    entries = "\n".join(f'        "{name}": {named[name]},' for name in PER_LAYER)
    return INIT.format(entries=entries, **{name: named[name] for name in ("embedding", "final_norm", "head")})


def _local(text: str) -> str:
    return text.replace("self.spec", "spec").replace("self.weights", "weights")


def _entry(module: cst.Module, owner: str) -> cst.Module | None:
    parts = decoder_weights(module, owner)
    if parts is None:
        return None
    module = append_to_init(module, owner, _init(dict(parts)))
    module = prepend_to(module, owner, "step", STEP)
    module = add_method(module, owner, RUN)
    return add_import(module, "from native_step import Decoder")


def apply(candidate: Candidate) -> Candidate | None:
    """The entry file with a native path, and the files that it calls; None for a forward of another shape."""
    if candidate.text_of("build.py") not in (None, kernel("build.py")):
        return None
    module = parse(candidate.text_of(candidate.entry_file) or "")
    changed = _entry(module, candidate.entry_name) if module else None
    if changed is None:
        return None
    return candidate.with_files({name: kernel(name) for name in FILES} | {candidate.entry_file: changed.code})


NATIVE_STEP = Pass(
    name="native-step",
    reason="take batches of few tokens through the whole decoder in one C++ call, at the speed that memory gives weights",
    apply=apply,
    needs=("c++",),
    rank=2.0,
)
