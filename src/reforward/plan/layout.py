"""How one replica is spread over GPUs: words such as `tp4 dp2 ep8`, and whether a model and a GPU allow it."""

import re
from dataclasses import dataclass

from reforward.domain.errors import BadInput
from reforward.plan.gpu import Gpu
from reforward.plan.model import Model

WORD = re.compile(r"(tp|pp|dp|ep|etp)(\d+)")


@dataclass(frozen=True, kw_only=True, order=True)
class Layout:
    """Ranks by role. Attention runs on tp × dp ranks of each of pp stages, experts on moe_tp × moe_ep of the same."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    """Replicas of the attention that share the experts; each schedules its own requests."""
    moe_tp: int = 0
    """Ranks that share one expert; 0: what `moe_ep` leaves over."""
    moe_ep: int = 1
    """Groups of ranks that hold different experts."""

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "moe_ep"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        ranks = self.tp * self.dp
        if not self.moe_tp:
            object.__setattr__(self, "moe_tp", max(ranks // self.moe_ep, 1))
        if self.moe_tp * self.moe_ep != ranks:
            raise BadInput(
                f"tp × dp = {self.tp} × {self.dp} ranks hold the attention, but {self.moe_tp} × {self.moe_ep} "
                f"the experts; the products must be equal"
            )

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """`tp4 dp2 ep8 pp1`, in any order; what is not named is 1, `etp` is what is left over."""
        words = text.lower().replace(",", " ").split()
        found = [(word, WORD.fullmatch(word)) for word in words]
        wrong = [word for word, match in found if match is None]
        if wrong or not words:
            raise BadInput(
                f"layout {text!r} is not understood at {wrong or 'its end'}; write words such as 'tp4 dp2 ep8'"
            )
        sizes = {match[1]: int(match[2]) for _, match in found if match}
        if len(sizes) != len(words):
            raise BadInput(f"layout {text!r} names a size twice; name each once")
        return cls(
            tp=sizes.get("tp", 1),
            pp=sizes.get("pp", 1),
            dp=sizes.get("dp", 1),
            moe_tp=sizes.get("etp", 0),
            moe_ep=sizes.get("ep", 1),
        )

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.pp * self.dp

    @property
    def ranks(self) -> int:
        """GPUs of one pipeline stage."""
        return self.tp * self.dp

    def __str__(self) -> str:
        sizes = (("tp", self.tp, True), ("pp", self.pp, self.pp > 1), ("dp", self.dp, self.dp > 1))
        words = [f"{name}{size}" for name, size, shown in sizes if shown]
        return " ".join([*words, f"ep{self.moe_ep}"] if self.moe_ep > 1 else words)

    def why_not(self, model: Model, gpu: Gpu) -> str:
        """What forbids this layout, with the remedy; empty if nothing does."""
        if self.gpus > gpu.scale_up:
            return (
                f"{self} needs {self.gpus} GPUs that reach one another, but a scale-up domain of {gpu.name} has "
                f"{gpu.scale_up}; use several replicas"
            )
        for one in model.attention:
            if one.heads % self.tp:
                return (
                    f"{one.heads} heads of {model.name} cannot be divided by tp{self.tp}; use a divisor of {one.heads}"
                )
        if self.pp > model.layers:
            return f"{model.layers} layers of {model.name} cannot make {self.pp} pipeline stages; use fewer"
        return self._experts_why_not(model)

    def _experts_why_not(self, model: Model) -> str:
        if model.moe is None:
            extra = [name for name in ("dp", "moe_ep") if getattr(self, name) > 1]
            return f"{model.name} has no experts, so {self} makes no sense; use replicas for {extra}" if extra else ""
        if model.moe.experts % self.moe_ep:
            return f"{model.moe.experts} experts of {model.name} cannot be divided by ep{self.moe_ep}; use a divisor"
        if model.moe.width % self.moe_tp:
            return f"experts of {model.name} are {model.moe.width} wide, which {self.moe_tp} ranks cannot share; use more ep"
        return ""

    def check(self, model: Model, gpu: Gpu) -> "Layout":
        """Itself. Raises `BadInput` with what forbids it."""
        if reason := self.why_not(model, gpu):
            raise BadInput(reason)
        return self
