"""Semantic patches: what they find, what they leave alone, and that the text around them survives."""

import libcst as cst
import pytest

from reforward.propose.match import Rule, code_of, rewrite, search
from reforward.propose.shape import function_like


def patched(text: str, rule: Rule) -> tuple[str, int]:
    module, hits = rewrite(cst.parse_module(text), rule)
    return module.code, hits


def test_an_expression_is_replaced_wherever_it_stands() -> None:
    rule = Rule(before="f(ANY_x)[ANY_i]", after="f(ANY_x[ANY_i])")
    assert patched("y = f(a + b)[rows] * f(c)[0]\n", rule) == ("y = f((a + b)[rows]) * f(c[0])\n", 2)


def test_the_same_hole_must_hold_the_same_code() -> None:
    rule = Rule(before="ANY_x - ANY_x", after="0")
    assert patched("y = (a  -  a) + (a - b)\n", rule) == ("y = 0 + (a - b)\n", 1)


def test_no_brackets_where_none_are_needed() -> None:
    assert patched("y = f(a + b, 0)\n", Rule(before="f(ANY_x, 0)", after="g(ANY_x)")) == ("y = g(a + b)\n", 1)


def test_consecutive_statements_are_replaced_and_comments_around_them_kept() -> None:
    text = "def f(x):\n    # why\n    a = g(x)\n    b = h(a)\n    return b  # so\n"
    rule = Rule(before="ANY_a = g(ANY_x)\nANY_b = h(ANY_a)", after="ANY_b = gh(ANY_x)")
    assert patched(text, rule) == ("def f(x):\n    b = gh(x)\n    return b  # so\n", 1)


@pytest.mark.parametrize("text", ["a = g(x)\nc = 1\nb = h(a)\n", "a = g(x)\nb = h(c)\n", "a: int = 0\n"])
def test_other_code_is_left_alone(text: str) -> None:
    rule = Rule(before="ANY_a = g(ANY_x)\nANY_b = h(ANY_a)", after="ANY_b = gh(ANY_x)")
    assert patched(text, rule) == (text, 0)


def test_search_says_what_each_hole_stands_for() -> None:
    module = cst.parse_module("def f(x):\n    y = w[x]\n    z = w[y + 1]\n")
    found = search(module, "ANY_out = w[ANY_key]")
    assert [(code_of(f["ANY_out"]), code_of(f["ANY_key"])) for f in found] == [("y", "x"), ("z", "y + 1")]


def test_a_function_is_known_by_its_shape_whatever_its_names() -> None:
    shape = "def scale(x, by):\n    wide = x.float()\n    return wide * by"
    other = cst.parse_module(
        'def anything(tensor, factor):\n    """Doc."""\n    t = tensor.float()\n    return t * factor\n'
    )
    swapped = cst.parse_module("def anything(tensor, factor):\n    t = factor.float()\n    return t * tensor\n")
    assert function_like(cst.ensure_type(other.body[0], cst.FunctionDef), shape) == {}
    assert function_like(cst.ensure_type(swapped.body[0], cst.FunctionDef), shape) is None


def test_what_a_hole_stands_for_is_told_in_terms_of_parameters() -> None:
    shape = "def f(self, x, i):\n    weights, prefix = self.weights, ANY_prefix\n    return x * ANY_w"
    code = 'def f(self, x, layer):\n    w, p = self.weights, f"layers.{layer}"\n    return x * w[f"{p}.gate"]\n'
    found = function_like(cst.ensure_type(cst.parse_module(code).body[0], cst.FunctionDef), shape)
    assert found is not None
    assert code_of(found["ANY_w"]) == 'self.weights[f"layers.{layer}.gate"]'
