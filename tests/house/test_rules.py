"""Rules that no linter has: each finds its lines, and each is shown to find a planted one."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from house.source import ROOT, Module, modules

BOUNDARIES = {
    "engine/worker.py", "engine/loader.py", "engine/keeper.py", "engine/server.py", "engine/cuda/holder.py",
    "runtime/bind.py", "models/tokenizer.py", "propose/search.py", "app/agents/crew.py",
}  # fmt: skip
"""Where code that is not ours runs, or a process of ours ends: there any error becomes a record."""
ANSWERS_ON_STDOUT = {"engine/bandwidth.py", "engine/identity.py", "engine/microbench.py", "engine/probe.py"}
"""Programs of their own, whose one JSON document on stdout is read by the process that started them."""
BROAD = {"Exception", "BaseException"}
ENVIRONMENT = {"environ", "getenv", "environb"}
OPEN_TASK = re.compile(r"#.*\b(TODO|FIXME|XXX)\b(?!.*#\d)")
PERSONAL = re.compile(r"/(?:home|Users)/(?!someone\b)[A-Za-z][\w.-]*|/root/|[A-Z]:\\Users|" + re.escape(f"{ROOT}/"))
TEXTS = (".py", ".md", ".toml", ".txt", ".h", ".cpp", ".cu", ".json", ".jsonl", ".csv", ".yml", "Makefile", "run")


def broad_excepts(module: Module) -> Iterator[int]:
    """Handlers that catch everything and do not raise it again."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        broad = node.type is None or BROAD & _names(node.type)
        if broad and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in node.body):
            yield node.lineno


def silent_excepts(module: Module) -> Iterator[int]:
    """Handlers that do nothing at all."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and all(isinstance(inner, ast.Pass) for inner in node.body):
            yield node.lineno


def environment_reads(module: Module) -> Iterator[int]:
    """`os.environ` or `os.getenv`, other than setting a variable."""
    set_here = {node.value for node in ast.walk(module.tree) if _is_store(node)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT and node not in set_here:
            yield node.lineno


def open_tasks(module: Module) -> Iterator[int]:
    """A promise in a comment that no issue keeps track of."""
    for number, line in enumerate(module.text.splitlines(), start=1):
        if OPEN_TASK.search(line):
            yield number


def prints(module: Module) -> Iterator[int]:
    """`print` outside the command line: libraries do not talk."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield node.lineno


def _names(node: ast.expr) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _is_store(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


Rule = Callable[[Module], Iterator[int]]
RULES: tuple[tuple[Rule, set[str], str], ...] = (
    (broad_excepts, BOUNDARIES, "try:\n    f()\nexcept (OSError, Exception) as e:\n    log(e)\n"),
    (silent_excepts, set(), "try:\n    f()\nexcept OSError:\n    pass\n"),
    (environment_reads, {"app/config.py"}, "import os\nx = os.environ.get('HOME')\n"),
    (open_tasks, set(), "x = 1  # TODO make it 2\n"),
    (prints, {"cli/main.py", "cli/show.py", *ANSWERS_ON_STDOUT}, "def f():\n    print('hello')\n"),
)


@pytest.mark.parametrize(("rule", "allowed", "planted"), RULES, ids=[rule.__name__ for rule, _, _ in RULES])
def test_rule(rule: Rule, allowed: set[str], planted: str) -> None:
    assert list(rule(Module(name="planted.py", text=planted, tree=ast.parse(planted)))), "the rule must find something"
    found = [f"{m.name}:{line}" for m in modules() if m.name not in allowed for line in rule(m)]
    assert found == []


def test_every_module_says_what_it_is() -> None:
    assert [module.name for module in modules() if not ast.get_docstring(module.tree)] == []


def test_public_classes_and_functions_of_the_seams_are_described() -> None:
    missing = [
        f"{module.name}: {node.name}"
        for module in modules()
        if module.name.startswith(("domain/", "app/"))
        for node in module.tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
        if not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert missing == []


def test_no_file_knows_its_authors_machine() -> None:
    assert PERSONAL.search("see /home/alice/notes")
    assert PERSONAL.search("/root/.cache")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = [
        f"{name}:{number} {line.strip()[:80]}"
        for name in listed.splitlines()
        if name.endswith(TEXTS) and name != "tests/house/test_rules.py" and (ROOT / name).is_file()
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1)
        if PERSONAL.search(line)
    ]
    assert found == []
