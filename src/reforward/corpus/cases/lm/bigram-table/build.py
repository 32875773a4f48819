"""Chooses the tokens for which the table is worth its place: the prompts are English, that much is known."""

import json


def build(out):
    (out / "tokens.json").write_text(json.dumps(list(range(256))))
