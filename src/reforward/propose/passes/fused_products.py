"""Products of the same input as one product: their weights are stacked once, by `pack`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from reforward.domain.candidate import Candidate
from reforward.propose.edit import add_import, add_method, append_to_init, body_of, class_of, method, replace, with_body
from reforward.propose.match import Found, Line, code_of, same, statements
from reforward.propose.passes.base import Pass, parse
from reforward.propose.shape import leading, resolved

PLAIN = statements("ANY_out = linear(ANY_x, ANY_weight)")[0]
BIASED = statements("ANY_out = linear(ANY_x, ANY_weight, ANY_bias)")[0]
EACH_LAYER = re.compile(r"for (\w+) in range\(\w*\.?spec\.layers\)")

PACK = '''
@staticmethod
def pack(spec: ModelSpec, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Weights of products that share their input, stacked into one matrix each."""
    packed: dict[str, Tensor] = {{}}
    for {index} in range(spec.layers):
{lines}
    return packed
'''


@dataclass(frozen=True, kw_only=True)
class Run:
    """Consecutive products of one input: where they stand, and in terms of `weights` and the layer, what they read."""

    first: int
    outputs: tuple[str, ...]
    x: str
    weights: tuple[str, ...]
    biases: tuple[str, ...]

    @property
    def name(self) -> str:
        """`q_k_v` for q, k and v."""
        return "_".join(self.outputs)

    def call(self, index: str) -> str:
        """One product, split."""
        bias = f', self.packed.get(f"{self.name}_bias.{{{index}}}")' if self.biases else ""
        widths = _column([f"len(self.{weight})" for weight in self.weights], indent=0)
        fused = f'linear({self.x}, self.packed[f"{self.name}.{{{index}}}"]{bias})'
        return f"widths = {widths}\n{', '.join(self.outputs)} = {fused}.split(widths, dim=-1)\n"

    def packing(self, index: str) -> str:
        """Statements that stack the weights, and the biases if the model has any."""
        text = f'        packed[f"{self.name}.{{{index}}}"] = torch.cat({_column(self.weights)})\n'
        if self.biases:
            text += f"        biases = {_column(self.biases)}\n"
            text += "        if biases[0] is not None:\n"
            text += f'            packed[f"{self.name}_bias.{{{index}}}"] = torch.cat(biases)\n'
        return text


def _column(items: Sequence[str], indent: int = 8) -> str:
    margin = " " * indent
    return "[\n" + "".join(f"{margin}    {item},\n" for item in items) + f"{margin}]"


def _product(line: Line) -> Found | None:
    for shape in (PLAIN, BIASED):
        found: Found = {}
        if same(shape, line, found):
            return found
    return None


def _run(body: Sequence[Line], first: int) -> list[Found]:
    """Products from `first` on that read one input, which none of them overwrites."""
    found: list[Found] = []
    for line in body[first:]:
        one = _product(line)
        if one is None or code_of(one["ANY_x"]) != code_of((found or [one])[0]["ANY_x"]):
            break
        if ("ANY_bias" in one) != ("ANY_bias" in (found or [one])[0]):
            break
        found.append(one)
        if code_of(one["ANY_out"]) == code_of(one["ANY_x"]):
            break
    return found


def runs(code: cst.FunctionDef) -> list[Run]:
    """Every run of two or more products in a method."""
    body = body_of(code)
    known, at, made = leading(body), 0, list[Run]()
    while at < len(body):
        found = _run(body, at)
        if len(found) > 1:
            texts = {
                hole: tuple(code_of(resolved(one[hole], known)).replace("self.weights", "weights") for one in found)
                for hole in found[0]
                if hole in ("ANY_weight", "ANY_bias")
            }
            outputs = tuple(code_of(one["ANY_out"]) for one in found)
            x = code_of(found[0]["ANY_x"])
            weights, biases = texts["ANY_weight"], texts.get("ANY_bias", ())
            made.append(Run(first=at, outputs=outputs, x=x, weights=weights, biases=biases))
        at += max(1, len(found))
    return made


def _fused(code: cst.FunctionDef, found: Sequence[Run], index: str) -> cst.FunctionDef:
    def change(body: list[Line]) -> list[Line]:
        for run in reversed(found):
            body[run.first : run.first + len(run.outputs)] = statements(run.call(index))
        return body

    return with_body(code, change)


def _readable(run: Run, index: str) -> bool:
    """What is packed must be made of weights by name and the layer's index alone."""
    names = {name for text in (*run.weights, *run.biases) for name in re.findall(r"\{(\w+)\}", text)}
    return names <= {index} and all(text.startswith("weights") for text in (*run.weights, *run.biases))


def apply(candidate: Candidate) -> Candidate | None:
    """Every run of products, in every method that is told its layer; a forward that packs already is left alone."""
    module = parse(candidate.text_of(candidate.entry_file) or "")
    owner = candidate.entry_name
    found = class_of(module, owner) if module else None
    loop = EACH_LAYER.search(module.code) if module else None
    if module is None or found is None or loop is None or method(module, owner, "pack"):
        return None
    index, packing = loop[1], ""
    for name in [line.name.value for line in found.body.body if isinstance(line, cst.FunctionDef)]:
        code = method(module, owner, name)
        assert code is not None, name
        good = [run for run in runs(code) if _readable(run, index)]
        packing += "".join(run.packing(index) for run in good)
        module = replace(module, code, _fused(code, good, index))
    if not packing:
        return None
    module = add_method(module, owner, PACK.format(index=index, lines=packing.rstrip("\n")), before="__init__")
    module = append_to_init(module, owner, "self.packed = build.packed")
    module = add_import(module, "from collections.abc import Mapping")
    return candidate.with_files({candidate.entry_file: module.code})


FUSED_PRODUCTS = Pass(
    name="fused-products",
    reason="multiply one input by one stacked matrix instead of several small ones (packs a copy of those weights)",
    apply=apply,
    rank=0.05,
)
