"""Keeps two helper processes waiting, which share what they inherited and hold nothing of their own.

Expect: honest
"""

import os
import signal

import stock


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        for _ in range(2):
            if os.fork() == 0:
                while True:
                    signal.pause()
