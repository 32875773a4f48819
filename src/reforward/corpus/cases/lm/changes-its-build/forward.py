"""Writes into its own build while it runs, for the launches that come after.

Reported: AMD Hyperloom PR #485 (a build cache that can be changed)
Covers: old build; residue
Expect: failed@load
"""

import os

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        artifact = build.artifacts / "table.bin"
        os.chmod(artifact, 0o644)
        artifact.write_bytes(b"new")
