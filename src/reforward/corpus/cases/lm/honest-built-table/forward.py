"""Its build makes the table of rotary frequencies, which it reads at the start.

Expect: honest
"""

import json

import stock
import torch


class Forward(stock.Forward):
    def __init__(self, build):
        super().__init__(build)
        table = json.loads((build.artifacts / "exponents.json").read_text())
        exponents = torch.tensor(table, dtype=torch.float32, device=build.device)
        steps = 1.0 / build.spec.rope_theta ** exponents[: build.spec.head_dim // 2]
        stock.inverse_frequencies = lambda spec, device: steps
