"""Native matrix products: a product of few rows reads row-major weights once, at memory speed."""

import libcst as cst

from reforward.domain.candidate import Candidate
from reforward.propose.edit import add_import, append_to_init, method
from reforward.propose.match import Rule, rewrite
from reforward.propose.passes.base import Pass, kernel, parse

FILES = ("linear.cpp", "gemv.h", "pool.h", "shares.h", "vector.h", "native_linear.py", "build.py")
RULES = (
    Rule(before="F.linear(ANY_x, ANY_w, ANY_b)", after="native_linear.linear(ANY_x, ANY_w, ANY_b)"),
    Rule(before="F.linear(ANY_x, ANY_w)", after="native_linear.linear(ANY_x, ANY_w)"),
)


def apply(candidate: Candidate) -> Candidate | None:
    """Every `F.linear` of an `lm` forward goes through the native one, which passes large products on."""
    if candidate.host != "lm" or candidate.text_of("build.py") not in (None, kernel("build.py")):
        return None
    module = parse(candidate.text_of(candidate.entry_file) or "")
    if module is None or method(module, candidate.entry_name, "__init__") is None:
        return None
    module, hits = _linear(module)
    if hits == 0:
        return None
    module = append_to_init(module, candidate.entry_name, "native_linear.load(build.artifacts)")
    module = add_import(module, "import native_linear")
    return candidate.with_files({name: kernel(name) for name in FILES} | {candidate.entry_file: module.code})


def _linear(module: cst.Module) -> tuple[cst.Module, int]:
    hits = 0
    for rule in RULES:
        module, more = rewrite(module, rule)
        hits += more
    return module, hits


NATIVE_LINEAR = Pass(
    name="native-linear",
    reason="multiply few rows by row-major weights in C++ at memory speed; large products stay with PyTorch",
    apply=apply,
    needs=("c++",),
    rank=0.8,
)
