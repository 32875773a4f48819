"""The exponents of the rotary frequencies, for heads of 16."""

import json


def build(out):
    (out / "exponents.json").write_text(json.dumps([2 * i / 16 for i in range(8)]))
