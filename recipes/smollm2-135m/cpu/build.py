"""Build stage: each C++ source beside this file becomes a shared library of the same name."""

from pathlib import Path

from reforward.runtime.native import compile_shared


def build(out: Path) -> None:
    for source in sorted(Path(__file__).parent.glob("*.cpp")):
        compile_shared([source], out, source.stem)
