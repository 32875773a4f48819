"""Compiles in the first call after the warm-up, which pays for all that follow.

Reported: SGLang ships a compile cache because of this; ours in this form
Covers: hidden compilation; warm-up detection
Expect: slower, no-gain, undecided
"""

import stock

BODY = "def kernel(x):\n" + "".join(f"    x = x * {i} + {i}\n" for i in range(2000)) + "    return x\n"


class Forward(stock.Forward):
    calls = 0

    def step(self, batch, logits):
        self.calls += 1
        if self.calls == 12:
            for _ in range(20):
                exec(compile(BODY, "kernel", "exec"), {})
        super().step(batch, logits)
