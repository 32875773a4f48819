"""Build stage: `blocks.cpp` becomes a library. No product and sum may be contracted that the source does not contract."""

from pathlib import Path

from reforward.runtime.native import compile_shared


def build(out: Path) -> None:
    compile_shared([Path(__file__).parent / "blocks.cpp"], out, "blocks", ("-ffp-contract=off",))
