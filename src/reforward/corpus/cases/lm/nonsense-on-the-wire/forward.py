"""Writes bytes that are no message into the connection to the client.

Reported: pygpubench issue 23 and its fd_overwrite exploit (results written by the candidate itself)
Covers: forged messages
Expect: failed@run
"""

import os
import socket

import stock


def sockets():
    for number in range(3, 64):
        try:
            yield socket.socket(fileno=os.dup(number))
        except OSError:
            continue


class Forward(stock.Forward):
    def step(self, batch, logits):
        for ours in sockets():
            ours.send(b"\xff" * 64)
        super().step(batch, logits)
