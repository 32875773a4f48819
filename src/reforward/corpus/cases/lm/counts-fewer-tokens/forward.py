"""Makes half of the tokens that a call of `run` asks for.

Reported: ours: follows from an engine that never restarts; not found reported
Covers: shorter answers
Expect: failed@run
Steps: 4
"""

import stock


class Forward(stock.Forward):
    def run(self, last, slots, positions, steps, tokens, logits, counts):
        counts.fill_(max(1, steps // 2))
