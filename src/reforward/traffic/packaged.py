"""The traces that ship with the package (see `data/CITATION.md`)."""

from pathlib import Path

from reforward.traffic.trace import Trace, read_trace

PATH = Path(__file__).parent / "data" / "azure2023_conv_slice.csv"
CODE = PATH.with_name("azure2023_code_slice.csv")
CITATION = "Azure LLM inference trace 2023, conversation, first 2,000 rows (CC-BY-4.0; Patel et al., ISCA 2024)"


def packaged_trace() -> Trace:
    """2,000 conversation requests over six minutes."""
    return read_trace(PATH)


def packaged_code_trace() -> Trace:
    """2,000 code-completion requests over fourteen minutes: a client to join the others, in tests of drift."""
    return read_trace(CODE)
