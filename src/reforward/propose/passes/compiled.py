"""`torch.compile` of each decoder layer: operators fused by the compiler, at the price of minutes of compiling."""

from reforward.domain.candidate import Candidate
from reforward.propose.edit import add_import, append_to_init, method
from reforward.propose.match import search
from reforward.propose.passes.base import Pass, parse

CALL = "ANY_x = self.layer(ANY_x, ANY_index, ANY_batch, ANY_cos, ANY_sin)"
INIT = """
torch._dynamo.config.recompile_limit = 8 * build.spec.layers  # one graph per layer and kind of call
self.layer = torch.compile(self.layer, dynamic=True)
"""


def apply(candidate: Candidate) -> Candidate | None:
    """Only a forward that runs its layers one by one through a method `layer`."""
    module = parse(candidate.text_of(candidate.entry_file) or "")
    step = method(module, candidate.entry_name, "step") if module else None
    if module is None or step is None or "torch.compile" in module.code or not search(step, CALL):
        return None
    return candidate.with_files({candidate.entry_file: append_to_init(module, candidate.entry_name, INIT).code})


def apply_whole(candidate: Candidate) -> Candidate | None:
    """The forward of a module, as one function; its weights are attached before the first call compiles it."""
    module = parse(candidate.text_of(candidate.entry_file) or "") if candidate.host == "module" else None
    if module is None or "torch.compile" in module.code or not method(module, candidate.entry_name, "__init__"):
        return None
    line = "self.forward = torch.compile(self.forward)"
    module = append_to_init(add_import(module, "import torch"), candidate.entry_name, line)
    return candidate.with_files({candidate.entry_file: module.code})


COMPILED_LAYERS = Pass(
    name="compiled-layers",
    reason="compile each decoder layer with torch.compile, which fuses its small operators; takes minutes",
    apply=apply,
    needs=("c++",),
    slow=True,
    rank=0.1,
)

COMPILED_MODULE = Pass(
    name="compiled-module",
    reason="compile the whole forward with torch.compile, which fuses its small operators; takes minutes",
    apply=apply_whole,
    needs=("c++",),
    slow=True,
    rank=0.5,
)
