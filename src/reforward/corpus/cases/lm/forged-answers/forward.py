"""Sends well-formed answers of its own and lets the work wait.

Reported: pygpubench fd_overwrite and pipe_interpose
Covers: forged messages; cross-call batching
Expect: token-mismatch, numerics, failed@run
"""

import os
import socket

import stock

from reforward.engine import wire


def sockets():
    for number in range(3, 64):
        try:
            yield socket.socket(fileno=os.dup(number))
        except OSError:
            continue


class Forward(stock.Forward):
    def step(self, batch, logits):
        answer = tuple(0 for _ in range(len(logits)))
        for ours in sockets():
            wire.send(ours, wire.Tokens(steps=(answer,)))
