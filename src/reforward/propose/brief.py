"""The brief: what an author is told before it begins. One template, strict: a name that is not filled in is an error."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from jinja2 import Environment, StrictUndefined, Template

from reforward.domain.candidate import MAX_BYTES, MAX_FILES
from reforward.domain.contract import Numerics
from reforward.domain.ports import Brief
from reforward.domain.target import Target
from reforward.domain.workload import Workload

TEMPLATE = "brief.md.j2"
Style = Literal["naive", "playbook"]
"""Raw source, tools and rules alone; or with a guide of people who know the kind of machine."""
NUMERICS: dict[Numerics, str] = {
    "bit-exact": "outputs must have the same bits as the stock forward's",
    "reassociated": "sums may be taken in another order, at the same precision; errors against a float64 reference are "
    "compared with the stock forward's own",
}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the brief says besides the port's `Brief`: all of it public."""

    contract_source: str
    """Text of the host's contract."""
    seconds_left: float | None
    history: tuple[str, ...]
    """Lines of one verdict each, cut to a length."""
    door: str = ""
    """Address for this author; empty if it is spoken to otherwise."""
    shared: bool = True
    """The author sees what others do in the run."""
    playbook: str = ""
    """Advice by people who know the device; empty for the naive style."""


def render(brief: Brief, facts: Facts) -> str:
    """Markdown. Never content of requests, never a hidden number."""
    return _template().render(
        subject=brief.subject,
        target=brief.target,
        workload=brief.workload,
        contract=brief.contract,
        stock=brief.stock,
        incumbent=brief.incumbent,
        numerics=NUMERICS[brief.contract.numerics],
        histogram=histogram(brief.workload),
        most_files=MAX_FILES,
        most_bytes=MAX_BYTES,
        contract_source=facts.contract_source.rstrip("\n"),
        seconds_left=facts.seconds_left,
        history=[_one_line(line) for line in facts.history],
        door=facts.door,
        shared=facts.shared,
        playbook=facts.playbook,
    )


def playbook(style: Style, target: Target) -> str:
    """The guide that belongs to a style and a machine; empty for the naive one."""
    if style == "naive":
        return ""
    name = "cuda.md" if target.machine.devices else "cpu.md"
    return resources.files("reforward.propose").joinpath("playbooks", name).read_text(encoding="utf-8").rstrip("\n")


def histogram(workload: Workload) -> tuple[tuple[str, float, float], ...]:
    """(tokens `low-high`, share of prompts, share of outputs) in bins of powers of two; shares by observed requests."""
    prompts = [request.prompt_tokens for request in workload.requests]
    outputs = [request.output_tokens for request in workload.requests]
    bits = {tokens.bit_length() for tokens in (*prompts, *outputs)}
    return tuple(
        (f"{2 ** (bit - 1)}–{2**bit - 1}", _share(prompts, workload, bit), _share(outputs, workload, bit))
        for bit in range(min(bits, default=1), max(bits, default=0) + 1)
    )


def _share(tokens: Sequence[int], workload: Workload, bit: int) -> float:
    inside = sum(w for count, w in zip(tokens, workload.weights, strict=True) if count.bit_length() == bit)
    return inside / sum(workload.weights)


def _one_line(text: str) -> str:
    """Words of strangers cannot end the block that they are shown in."""
    return " ".join(text.replace("`", "'").split())


@cache
def _template() -> Template:
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    return environment.from_string(resources.files("reforward.propose").joinpath(TEMPLATE).read_text(encoding="utf-8"))
