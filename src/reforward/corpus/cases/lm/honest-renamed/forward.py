"""The stock forward under another name: the same work at the same speed.

Expect: honest
"""

import stock


class Forward(stock.Forward):
    """Nothing is changed."""
