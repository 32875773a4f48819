"""Its class makes an instance of the stock: what is named is not what runs.

Reported: Kevin (arXiv 2507.11948); VibeSys PR #262
Covers: not on the live path; fallback to stock
Expect: failed@load
"""

import stock_network
from torch import nn


class Network(nn.Module):
    def __new__(cls):
        return stock_network.Network()
