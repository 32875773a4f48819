"""One file."""


def build(out):
    (out / "table.bin").write_bytes(b"old")
