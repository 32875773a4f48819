"""Right for ten calls, then off by a millionth.

Reported: karpathy/llm.c PR #852 (right at first, wrong later); SOL-ExecBench checks structure in the first round only
Covers: drift; warm-up detection
Expect: numerics
"""

import stock_network


class Network(stock_network.Network):
    calls = 0

    def mixed(self, x):
        self.calls += 1
        return super().mixed(x) * (1 + 1e-6 * (self.calls > 6))
