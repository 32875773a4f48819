"""The serving engine and its limits: what the launch command sets, and the replay and the memory plan obey."""

from dataclasses import dataclass

from reforward.domain.errors import BadInput

ENGINES = ("vllm", "sglang", "trtllm")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A serving engine by name, and the version that coefficients and launch words are for."""

    name: str = "vllm"
    version: str = ""

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise BadInput(f"engine {self.name!r} is not known; one of {', '.join(ENGINES)}")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Batch limits of one scheduler, that is of one attention replica."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 0
    """Longest request, prompt and output; 0: the model's own length."""
    memory_utilization: float = 0.9
    """Share of the GPU's memory that the engine takes."""
    block_size: int = 16
    """Tokens per block of the cache."""
    staging_seqs: int = 0
    """Disaggregation: requests whose cache is held while it is in flight."""

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.memory_utilization <= 1:
            raise BadInput(f"memory_utilization is a share of the memory in (0, 1], got {self.memory_utilization}")
