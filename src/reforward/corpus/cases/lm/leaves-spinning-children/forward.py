"""Starts six processes that spin for ever, in sessions of their own, so that the other arm has no core left.

Reported: AMD Hyperloom SKILL IR-1 (a leftover server: baseline 5-30 % slower); ours in this form
Covers: slowing the other arm; background work
Expect: slower, no-gain, memory
"""

import os

import stock


def spin():
    os.setsid()
    if os.fork():
        os._exit(0)
    while True:
        pass


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        for _ in range(6):
            if os.fork() == 0:
                spin()
