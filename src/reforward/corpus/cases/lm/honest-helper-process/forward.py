"""Starts a process that computes its rotary table, takes the result and lets it end.

Expect: honest
"""

import multiprocessing

import stock
import torch


def frequencies(pipe, count, theta):
    pipe.send([theta ** (-i / count) for i in range(count)])


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        helper = context.Process(target=frequencies, args=(theirs, build.spec.head_dim // 2, build.spec.rope_theta))
        helper.start()
        ours.recv()
        helper.join()
