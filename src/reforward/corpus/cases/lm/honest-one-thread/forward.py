"""Sets the number of threads to one, for itself.

Expect: honest
"""

import stock
import torch

torch.set_num_threads(1)


class Forward(stock.Forward):
    """The line above is all that differs."""
