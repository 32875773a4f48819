"""The stock network under another name.

Expect: honest
"""

import stock_network


class Network(stock_network.Network):
    """Nothing is changed."""
