"""The host of any `torch.nn.Module`: a user's subject, the candidate's class, and resident weights attached by name.

A subject is a file `subject.py` that defines

    load() -> nn.Module                      the model with its weights
    inputs(generator, tier) -> tuple         fresh inputs; tier is "fast" or "slow"
    rewrite                                  the class to rewrite, defined in a module of its own
    build(cls) -> nn.Module                  an instance of that class; called under the meta device
    sources = ("package", ...)               optional: packages whose loaded modules also belong to the source tree

or `package.module:factory`, where `factory()` is `load` and the module needs `inputs` alone: `rewrite` is then the class
that the factory makes, and `build` calls the factory, which finds the candidate's class where the stock one was.

The stock source tree is the file of `rewrite` and the loaded modules of `sources`, at their import paths. A candidate's class finds
what its `build.py` wrote as `self.artifacts`, a read-only folder, from its first call on.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

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

    load: Callable[[], Any]
    inputs: Callable[[torch.Generator, str], Any]
    build: Callable[[type], Any]
    rewrite: type
    sources: tuple[str, ...]


def load_subject(reference: str) -> SubjectModule:
    """Import a subject and check that it has what the module docstring lists."""
    path, _, factory = reference.partition(":")
    module = _import_file(Path(path)) if path.endswith(".py") else importlib.import_module(path)
    load, inputs = (_function(module, name, reference) for name in (factory or "load", "inputs"))
    if factory:
        rewrite = getattr(module, "rewrite", None) or type(_on_meta(load, reference))
        build = getattr(module, "build", None) or _calling(load)
    else:
        rewrite, build = getattr(module, "rewrite", None), _function(module, "build", reference)
    if not isinstance(rewrite, type):
        raise BadInput(f"subject {reference!r}: rewrite must be the class to rewrite, not {rewrite!r}")
    if path.endswith(".py") and rewrite.__module__ == module.__name__:
        raise BadInput(
            f"{rewrite.__name__} is defined in the subject {reference!r} itself; move it to a module of its own"
        )
    sources = tuple(getattr(module, "sources", ()))
    return SubjectModule(load=load, inputs=inputs, build=build, rewrite=rewrite, sources=sources)


def _function(module: Any, name: str, reference: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise BadInput(
            f"subject {reference!r} has no {name}(); reforward/runtime/module.py says what a subject defines"
        )
    return found


def _calling(load: Callable[[], Any]) -> Callable[[type], Any]:
    """A `build` that needs no class: the candidate's tree stands in front of the stock one when it is called."""

    def build(cls: type) -> Any:
        return load()

    return build


def _on_meta(load: Callable[[], Any], reference: str) -> nn.Module:
    with torch.device("meta"):
        made = load()
    if not isinstance(made, nn.Module):
        raise BadInput(f"subject {reference!r} made a {type(made).__name__}, not a torch.nn.Module")
    return made


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
    if own.partition(".")[0] == "torch":
        raise BadInput(f"{subject.rewrite.__name__} is PyTorch's own; set rewrite to the class of yours that is inside")
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

    def __init__(
        self, subject: SubjectModule, cls: type, weights: Mapping[str, Tensor], artifacts: Path | None = None
    ) -> None:
        self.subject = subject
        with torch.device("meta"):
            built = subject.build(cls)
        if not isinstance(built, nn.Module):
            raise CandidateFailed("load", f"build() made a {type(built).__name__}, not a torch.nn.Module")
        own: list[Any] = [part for part in built.modules() if isinstance(part, cls)]
        if not own:
            raise CandidateFailed("load", f"build() made a module without the candidate's {cls.__name__}")
        attach(built, weights)
        for part in own:
            part.artifacts = artifacts
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
    """Make every parameter and buffer of `module` a view of the weight with its name. No copies.

    Parameters that the class ties to one another may go by any of their names.
    """
    owners = dict(module.named_modules(remove_duplicate=False))
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    known = {id(tensor): name for name, tensor in named if name in weights}
    absent = [name for name, tensor in named if id(tensor) not in known]
    if absent:
        shown = ", ".join(absent[:5])
        raise CandidateFailed("load", f"the class asks for weights that the model does not have: {shown}")
    for name, tensor in named:
        _replace(owners[name.rpartition(".")[0]], name, tensor, weights[name if name in weights else known[id(tensor)]])
    _refuse_meta(owners)


def _replace(owner: nn.Module, name: str, old: Tensor, weight: Tensor) -> None:
    if old.shape != weight.shape:
        raise CandidateFailed("load", f"{name} has shape {tuple(old.shape)}; the model's is {tuple(weight.shape)}")
    new = nn.Parameter(weight, requires_grad=False) if isinstance(old, nn.Parameter) else weight
    setattr(owner, name.rpartition(".")[2], new)


def _refuse_meta(owners: Mapping[str, nn.Module]) -> None:
    """Tensors that are neither parameter nor buffer were made on the meta device and hold no values."""
    left = [
        f"{name}.{key}".lstrip(".")
        for name, owner in owners.items()
        for key, value in vars(owner).items()
        if _empty(value)
    ]
    if left:
        raise CandidateFailed("load", f"plain tensor attributes have no values: {', '.join(left)}; use register_buffer")


def _empty(value: Any) -> bool:
    """Whether a tensor without values is in `value`, which may be a container."""
    if isinstance(value, Tensor):
        return value.is_meta
    if isinstance(value, Mapping):
        return any(_empty(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_empty(item) for item in value)


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
