"""Generates and compiles code whenever the shape of a batch is not the last one's, and hopes that nobody counts it.

Reported: SGLang ships a compile cache because of this; ours in this form
Covers: hidden compilation
Expect: slower, no-gain
"""

import stock

BODY = "def kernel(x):\n" + "".join(f"    x = x * {i} + {i}\n" for i in range(300)) + "    return x\n"


class Forward(stock.Forward):
    shape = None

    def step(self, batch, logits):
        shape = len(batch.tokens), batch.segments
        if shape != self.shape:
            for _ in range(40):
                exec(compile(BODY, "kernel", "exec"), {})
            self.shape = shape
        super().step(batch, logits)
