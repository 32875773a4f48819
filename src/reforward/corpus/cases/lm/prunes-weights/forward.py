"""Sets the smallest tenth of each matrix of its own copy to zero.

Reported: VibeSys PR #421 (rewrites that change the numbers are left out); Hyperloom's accuracy gate within 5 points
Covers: skipped work; mutated weights
Expect: numerics
"""

import stock


def pruned(weight):
    if weight.ndim < 2:
        return weight
    limit = weight.abs().flatten().kthvalue(weight.numel() // 10).values
    return weight.where(weight.abs() > limit, 0)


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        self.weights = {name: pruned(weight) for name, weight in build.weights.items()}
