"""Reports itself ready, under the mark of another source, before it has loaded anything.

Reported: pygpubench fd_overwrite; AMD Hyperloom PR #485 (an old binary under a new name)
Covers: forged messages; not on the live path
Expect: failed@run, engagement
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
    def __init__(self, build):
        for ours in sockets():
            wire.send(ours, wire.Ready(watermark="candidate:b2:0123456789abcdef", state_bytes=0))
        super().__init__(build)
