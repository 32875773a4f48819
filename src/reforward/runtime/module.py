"""The host of any `torch.nn.Module`: a user's subject, the candidate's class, and resident weights attached by name.

A subject is a file `subject.py`, or `package.module:factory`, whose module defines

    load() -> nn.Module                      the model with its weights (or the factory itself)
    inputs(generator, tier) -> tuple         fresh inputs; tier is "fast" or "slow"
    rewrite                                  the class to rewrite, defined in a module of its own
    build(cls) -> nn.Module                  an instance of that class, made on the meta device
    sources = ("package", ...)               optional: packages whose loaded modules also belong to the source tree

The stock source tree is the file of `rewrite` and the loaded modules of `sources`, at their import paths.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import BadInput, CandidateFailed


@dataclass(frozen=True, kw_only=True)
class SubjectModule:
    """A validated subject."""

    load: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator, str], tuple[Tensor, ...]]
    build: Callable[[type], nn.Module]
    rewrite: type
    sources: tuple[str, ...]


def load_subject(reference: str) -> SubjectModule:
    """Import a subject and check that it has what the module docstring lists."""
    path, _, factory = reference.partition(":")
    module = _import_file(Path(path)) if path.endswith(".py") else importlib.import_module(path)
    load = getattr(module, factory or "load", None)
    missing = [name for name in ("inputs", "build", "rewrite") if not hasattr(module, name)]
    if not callable(load) or missing:
        wanted = ", ".join(missing or [factory or "load"])
        raise BadInput(f"subject {reference!r} lacks {wanted}; reforward/runtime/module.py says what a subject defines")
    if not isinstance(module.rewrite, type):
        raise BadInput(f"subject {reference!r}: rewrite must be a class, not {module.rewrite!r}")
    return SubjectModule(
        load=load, inputs=module.inputs, build=module.build, rewrite=module.rewrite,
        sources=tuple(getattr(module, "sources", ())),
    )  # fmt: skip


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise BadInput(f"subject file {str(path)!r} does not exist")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def module_stock(subject: SubjectModule) -> Candidate:
    """The stock source tree. Call it after `subject.load()`, when everything that the class needs is imported."""
    own = subject.rewrite.__module__
    if own in ("subject", "__main__"):
        raise BadInput(f"{subject.rewrite.__name__} is defined in the subject itself; move it to a module of its own")
    names = [own, *(n for n in sys.modules if any(n == s or n.startswith(f"{s}.") for s in subject.sources))]
    files = {path: text for path, text in map(_source_of, sorted(set(names))) if text.strip() or "/" in path}
    entry = _source_of(own)[0]
    tree = tuple(SourceFile(path=path, text=files[path]) for path in sorted(files))
    return Candidate(host="module", entry=f"{entry}:{subject.rewrite.__name__}", files=tree)


def _source_of(name: str) -> tuple[str, str]:
    """Import path as a file path, and the text."""
    module = sys.modules[name]
    file = Path(module.__file__ or "")
    if file.suffix != ".py":
        raise BadInput(f"{name} has no Python source; only source can be rewritten")
    path = name.replace(".", "/") + ("/__init__.py" if file.name == "__init__.py" else ".py")
    return path, file.read_text(encoding="utf-8")


def export_state(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, persistent or not, contiguous on the CPU; shared tensors appear once."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.detach().cpu().contiguous() for name, tensor in named}


class ModuleHost:
    """One candidate class with the resident weights, ready to be called."""

    def __init__(self, subject: SubjectModule, cls: type, weights: Mapping[str, Tensor]) -> None:
        self.subject = subject
        with torch.device("meta"):
            built = subject.build(cls)
        if not isinstance(built, nn.Module):
            raise CandidateFailed("load", f"build() made a {type(built).__name__}, not a torch.nn.Module")
        attach(built, weights)
        self.module = built.eval()

    def draw(self, seed: int, tier: str) -> list[Tensor]:
        """Fresh inputs from the subject, the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        drawn = self.subject.inputs(generator, tier)
        if not all(isinstance(item, Tensor) for item in drawn):
            raise BadInput("inputs() must return a tuple of tensors")
        return list(drawn)

    @torch.inference_mode()
    def call(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """One forward; tensors of the returned tree by their place in it."""
        return flatten(self.module(*inputs))


def attach(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Make every parameter and buffer of `module` a view of the weight with its name. No copies."""
    owners = dict(module.named_modules())
    names = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    absent = [name for name in names if name not in weights]
    if absent:
        raise CandidateFailed(
            "load", f"the class asks for weights that the model does not have: {', '.join(absent[:5])}"
        )
    for name in names:
        _replace(owners[name.rpartition(".")[0]], name, weights[name])
    _refuse_meta(owners)


def _replace(owner: nn.Module, name: str, weight: Tensor) -> None:
    leaf = name.rpartition(".")[2]
    old = getattr(owner, leaf)
    if old.shape != weight.shape:
        raise CandidateFailed("load", f"{name} has shape {tuple(old.shape)}; the model's is {tuple(weight.shape)}")
    if leaf in owner._parameters:
        owner._parameters[leaf] = nn.Parameter(weight, requires_grad=False)
    else:
        owner._buffers[leaf] = weight


def _refuse_meta(owners: Mapping[str, nn.Module]) -> None:
    """Tensors that are neither parameter nor buffer were made on the meta device and hold no values."""
    left = [
        f"{name}.{key}".lstrip(".")
        for name, owner in owners.items()
        for key, value in vars(owner).items()
        if isinstance(value, Tensor) and value.is_meta
    ]
    if left:
        raise CandidateFailed("load", f"plain tensor attributes have no values: {', '.join(left)}; use register_buffer")


def flatten(value: Any, place: str = "output") -> dict[str, Tensor]:
    """Tensors of a returned tree by place: `output`, `output[0]`, `output.loc`."""
    if isinstance(value, Tensor):
        return {place: value}
    if isinstance(value, Mapping):
        parts = [(f"{place}.{key}", item) for key, item in value.items()]
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [(f"{place}.{field.name}", getattr(value, field.name)) for field in fields(value)]
    elif isinstance(value, (tuple, list)):
        parts = [(f"{place}[{index}]", item) for index, item in enumerate(value)]
    elif value is None:
        return {}
    else:
        raise CandidateFailed("output", f"{place} is a {type(value).__name__}; only trees of tensors can be compared")
    return {name: tensor for part, item in parts for name, tensor in flatten(item, part).items()}
