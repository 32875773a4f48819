"""The host of modules: subjects are checked, weights are attached and never copied, outputs are trees of tensors."""

import sys
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reforward.domain.errors import BadInput, CandidateFailed
from reforward.runtime import bind
from reforward.runtime.module import ModuleHost, SubjectModule, export_state, flatten, load_subject, module_stock

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(3, width)
        self.register_buffer("shift", torch.linspace(0, 1, width), persistent=False)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        y = self.norm(self.first(x)) + self.shift
        return {"sum": y.sum(-1), "all": (y, x)}
"""
SUBJECT = """
import torch
import net

rewrite = net.Net

def build(cls):
    return cls(4)

def load():
    torch.manual_seed(5)
    return build(net.Net).eval()

def inputs(generator, tier):
    return (torch.randn(2 if tier == "fast" else 5, 3, generator=generator),)
"""
FACTORY = (
    "import torch\n" + NET + "def make():\n    torch.manual_seed(5)\n    return nn.Sequential(Net(4)).eval()\n\n"
    "rewrite = Net\n\ndef inputs(generator, tier):\n    return (torch.randn(2, 3, generator=generator),)\n"
)
FRACAST = Path(__file__).parents[2] / "examples" / "science" / "fracast" / "subject.py"


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """A worker binds once and ends; a test process must forget."""
    modules, path, finders = set(sys.modules), list(sys.path), list(sys.meta_path)
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    for name in set(sys.modules) - modules:
        if not name.startswith("torch"):
            del sys.modules[name]


def written(folder: Path, **texts: str) -> str:
    for name, text in {"net": NET, "subject": SUBJECT, **texts}.items():
        (folder / f"{name}.py").write_text(text)
    return str(folder / "subject.py")


def of(cls: type[nn.Module], **changes: Any) -> SubjectModule:
    """A subject around a class."""
    settings: dict[str, Any] = {
        "load": cls, "inputs": lambda generator, tier: (), "build": lambda own: own(), "rewrite": cls, "sources": (),
    }  # fmt: skip
    return SubjectModule(**settings | changes)


def forget(*names: str) -> None:
    """A fresh worker has imported none of these."""
    for name in names:
        del sys.modules[name]


def test_a_candidate_shares_the_resident_weights(tmp_path: Path) -> None:
    reference = written(tmp_path)
    subject = load_subject(reference)
    model = subject.load()
    weights, stock = export_state(model), module_stock(subject)
    assert {"first.bias", "shift", "norm.weight", "norm.running_var", "norm.num_batches_tracked"} <= set(weights)
    assert (stock.entry, [file.path for file in stock.files]) == ("net.py:Net", ["net.py"])
    forget("net", "subject")
    files = {"net.py": NET.replace("y.sum(-1)", "y.mean(-1) * 4")}
    cls = bind.load_overlay(files, stock.entry, tmp_path / "tree", beside=reference)
    host = ModuleHost(load_subject(reference), cls, weights)
    held = dict([*host.module.named_parameters(), *host.module.named_buffers()])
    assert {name: t.data_ptr() for name, t in held.items()} == {name: t.data_ptr() for name, t in weights.items()}
    assert not any(parameter.requires_grad for parameter in host.module.parameters())
    inputs = host.draw(9, "slow")
    outputs, expected = host.call(inputs), model(*inputs)
    assert list(outputs) == ["output.sum", "output.all[0]", "output.all[1]"]
    assert torch.equal(outputs["output.all[0]"], expected["all"][0])
    assert torch.allclose(outputs["output.sum"], expected["sum"])


def test_draws_follow_seed_and_tier(tmp_path: Path) -> None:
    subject = load_subject(written(tmp_path))
    host = ModuleHost(subject, subject.rewrite, export_state(subject.load()))
    assert torch.equal(host.draw(1, "fast")[0], host.draw(1, "fast")[0])
    assert not torch.equal(host.draw(1, "fast")[0], host.draw(2, "fast")[0])
    assert (len(host.draw(1, "fast")[0]), len(host.draw(1, "slow")[0])) == (2, 5)


def test_a_factory_is_a_subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bind.write_files({"shop/__init__.py": "", "shop/model.py": FACTORY}, tmp_path / "installed")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    subject = load_subject("shop.model:make")
    weights, stock = export_state(subject.load()), module_stock(subject)
    assert (subject.rewrite.__name__, stock.entry) == ("Net", "shop/model.py:Net")
    forget("shop", "shop.model")
    files = {"shop/model.py": FACTORY.replace("+ self.shift", "+ self.shift + 1")}
    cls = bind.load_overlay(files, stock.entry, tmp_path / "tree", beside="shop.model:make")
    host = ModuleHost(load_subject("shop.model:make"), cls, weights)
    assert torch.equal(host.call(host.draw(1, "fast"))["output.all[0]"], changed(subject, host.draw(1, "fast")))


def changed(subject: SubjectModule, inputs: list[Tensor]) -> Tensor:
    with torch.inference_mode():
        return subject.load()(*inputs)["all"][0] + 1


def test_a_factory_alone_names_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lonely.py").write_text(FACTORY.replace("nn.Sequential(Net(4))", "Net(4)").replace("rewrite = Net", ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_subject("lonely:make").rewrite.__name__ == "Net"
    with pytest.raises(BadInput, match="no nothing\\(\\)"):
        load_subject("lonely:nothing")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def inputs", "def outputs", "no inputs\\(\\)"),
        ("def build", "def built", "no build\\(\\)"),
        ("def load", "def loads", "no load\\(\\)"),
        ("rewrite = net.Net", "", "must be the class to rewrite, not None"),
        ("rewrite = net.Net", "rewrite = 3", "must be the class to rewrite, not 3"),
    ],
)
def test_an_incomplete_subject_is_bad_input(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load_subject(written(tmp_path, subject=SUBJECT.replace(old, new)))


def test_a_class_of_torch_itself_is_not_rewritten() -> None:
    with pytest.raises(BadInput, match="Linear is PyTorch's own; set rewrite"):
        module_stock(of(nn.Linear))


def test_a_missing_subject_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        load_subject(str(tmp_path / "none.py"))


def test_the_class_must_live_outside_the_subject(tmp_path: Path) -> None:
    text = SUBJECT.replace("import net\n", NET).replace("net.Net", "Net")
    for name in ("subject", "mine"):
        written(tmp_path, **{name: text})
        with pytest.raises(BadInput, match="move it to a module of its own"):
            load_subject(str(tmp_path / f"{name}.py"))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


class Untied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)


class Loose(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = torch.arange(3)
        self.tables = [torch.zeros(2)]


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)


def test_tied_weights_are_stored_once_and_attached_twice() -> None:
    weights = export_state(Tied())
    assert list(weights) == ["embed.weight"]
    host = ModuleHost(of(Tied), Tied, weights)
    assert (
        host.module.head.weight.data_ptr() == host.module.embed.weight.data_ptr() == weights["embed.weight"].data_ptr()
    )


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (Untied, "weights that the model does not have: head.weight"),
        (Wide, "embed.weight has shape \\(5, 4\\); the model's is \\(5, 3\\)"),
        (Loose, "no values: steps, tables; use register_buffer"),
    ],
)
def test_a_class_that_does_not_fit_fails_to_load(cls: type[nn.Module], words: str) -> None:
    with pytest.raises(CandidateFailed, match=words) as caught:
        ModuleHost(of(cls), cls, export_state(Tied()))
    assert caught.value.stage == "load"


def test_build_must_use_the_class_it_is_given() -> None:
    with pytest.raises(CandidateFailed, match="without the candidate's Untied"):
        ModuleHost(of(Tied, build=lambda cls: Tied()), Untied, export_state(Tied()))
    with pytest.raises(CandidateFailed, match="made a str"):
        ModuleHost(of(Tied, build=lambda cls: "x"), Tied, {})


@dataclass
class Report:
    loc: Tensor
    parts: list[Tensor]


def test_outputs_are_named_by_their_place() -> None:
    one = torch.ones(1)
    assert list(flatten(one)) == ["output"]
    assert list(flatten((one, [one, None]))) == ["output[0]", "output[1][0]"]
    assert list(flatten(Report(loc=one, parts=[one]))) == ["output.loc", "output.parts[0]"]
    assert list(flatten({"a": one, 3: (one,)})) == ["output.a", "output.3[0]"]
    assert list(flatten(namedtuple("Pair", "x y")(one, one))) == ["output[0]", "output[1]"]
    with pytest.raises(CandidateFailed, match=r"output\[1\] is a float"):
        flatten((one, 3.0))


def test_draws_must_be_tensors() -> None:
    host = ModuleHost(of(Tied, inputs=lambda generator, tier: (1,)), Tied, export_state(Tied()))
    with pytest.raises(BadInput, match="tuple of tensors"):
        host.draw(1, "fast")


def test_the_class_finds_what_its_build_stage_wrote(tmp_path: Path) -> None:
    host = ModuleHost(of(Tied), Tied, export_state(Tied()), tmp_path)
    assert [part.artifacts for part in host.module.modules() if isinstance(part, Tied)] == [tmp_path]
    assert ModuleHost(of(Tied), Tied, export_state(Tied())).module.artifacts is None


@pytest.mark.real
def test_fracast_is_the_package_bit_for_bit(tmp_path: Path) -> None:
    subject = load_subject(str(FRACAST))
    weights, stock = export_state(subject.load()), module_stock(subject)
    names = [bind.overlay.module_name(file.path) for file in stock.files]
    assert stock.entry == "forecaster.py:Forecaster"
    assert "fracast._core.model" in names
    forget(*names, "fracast", "fracast.inference", "subject")
    files = {file.path: file.text for file in stock.files}
    cls = bind.load_overlay(files, stock.entry, tmp_path / "tree", beside=str(FRACAST))
    host = ModuleHost(load_subject(str(FRACAST)), cls, weights)
    assert bind.watermark(files, stock.entry, "module", tmp_path / "tree") == stock.id
    assert sys.modules["fracast._core.model"].__file__ == str(tmp_path / "tree" / "fracast" / "_core" / "model.py")
    held = dict([*host.module.named_parameters(), *host.module.named_buffers()])
    assert {name: t.data_ptr() for name, t in held.items()} == {name: t.data_ptr() for name, t in weights.items()}
    inputs, expected = package_forecast()
    ours = host.call(inputs)["output"]
    assert torch.equal(ours, expected)
    assert ours.std().item() > 0.01
    assert [(t.shape, t.dtype) for t in host.draw(3, "fast")] == [(t.shape, t.dtype) for t in inputs]


def package_forecast() -> tuple[list[Tensor], Tensor]:
    """What the package's own API feeds its model for a series with a gap, and the quantiles that come out."""
    from fracast.inference import FracastModel

    model: Any = FracastModel.from_pretrained()
    seen: list[Any] = []
    forward = model.head.forward_horizon
    model.core.register_forward_pre_hook(lambda module, args: seen.extend(args))
    model.head.forward_horizon = lambda *args, **kwargs: seen.append(forward(*args, **kwargs)) or seen[-1]
    time = torch.arange(3000.0)
    series = (torch.sin(time / 7) + 0.001 * time).numpy()
    series[2500:2520] = float("nan")
    model.forecast(series, horizon=48)
    *inputs, quantiles = seen
    return list(inputs), quantiles
