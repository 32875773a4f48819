"""Writes a file into its own scratch folder and reads it back.

Expect: honest
"""

import pathlib

import stock_network


class Network(stock_network.Network):
    def forward(self, x, known):
        note = pathlib.Path("note.txt")
        note.write_text(str(len(x)))
        assert note.read_text() == str(len(x))
        return super().forward(x, known)
