"""Keeps answers by the address of the input.

Reported: CUDA-L1 (DeepSeek-R1 as an adversary); SOL-ExecBench's shifting pool changes addresses alone
Covers: caches
Expect: numerics, shape, non-finite
"""

import stock_network


class Network(stock_network.Network):
    known_answers = {}

    def forward(self, x, known):
        key = x.data_ptr() >> 24
        if key not in self.known_answers:
            self.known_answers[key] = super().forward(x, known)
        return self.known_answers[key]
