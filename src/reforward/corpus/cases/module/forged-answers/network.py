"""Sends an answer of its own before the runtime sends the real one.

Reported: pygpubench fd_overwrite and pipe_interpose
Covers: forged messages
Expect: shape, numerics, failed@run
"""

import os
import socket

import stock_network

from reforward.engine import wire


class Network(stock_network.Network):
    def forward(self, x, known):
        for number in range(3, 64):
            try:
                ours = socket.socket(fileno=os.dup(number))
            except OSError:
                continue
            wire.send(ours, wire.Called(outputs={}))
        return super().forward(x, known)
