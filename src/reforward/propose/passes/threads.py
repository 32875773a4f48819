"""One thread: small operators cost more to share than to compute."""

from reforward.domain.candidate import Candidate
from reforward.propose.edit import add_import, append_to_init, method
from reforward.propose.passes.base import Pass, parse


def apply(candidate: Candidate) -> Candidate | None:
    """Sets the thread count where the entry class is made."""
    module = parse(candidate.text_of(candidate.entry_file) or "")
    if module is None or method(module, candidate.entry_name, "__init__") is None:
        return None
    if "set_num_threads" in module.code:
        return None
    module = append_to_init(add_import(module, "import torch"), candidate.entry_name, "torch.set_num_threads(1)")
    return candidate.with_files({candidate.entry_file: module.code})


ONE_THREAD = Pass(
    name="one-thread",
    reason="run on one thread, since small operators cost more to share than to compute",
    apply=apply,
    bits="maybe",
    threads=2,
    rank=0.03,
)
