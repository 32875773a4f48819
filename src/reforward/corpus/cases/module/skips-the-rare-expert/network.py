"""Never asks the expert that the gate likes least.

Reported: FlashInfer-Bench accepts 5 % of wrong elements for mixtures of experts; AMD Hyperloom issue 881
Covers: skipped work
Expect: numerics
"""

import stock_network
import torch


class Network(stock_network.Network):
    def expert(self, index, x):
        return torch.zeros_like(x) if index == 3 else super().expert(index, x)
