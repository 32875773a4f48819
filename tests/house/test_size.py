"""Small files, small functions: a reader holds one at a time."""

from statistics import median

from house.source import functions, lines_of, modules

MOST_LINES, MEDIAN_LINES = 400, 150
LONGEST, LONG, LONG_SHARE, MEDIAN_FUNCTION = 80, 40, 0.05, 8


def test_modules() -> None:
    sizes = {module.name: len(module.text.splitlines()) for module in modules()}
    assert len(sizes) > 50, "the package was found"
    assert [f"{name}: {size} lines" for name, size in sizes.items() if size > MOST_LINES] == []
    assert median(sizes.values()) <= MEDIAN_LINES


def test_functions() -> None:
    sizes = {f"{module.name}:{function.lineno} {function.name}": lines_of(function) for module, function in functions()}
    assert [f"{name}: {size} lines" for name, size in sizes.items() if size > LONGEST] == []
    assert median(sizes.values()) <= MEDIAN_FUNCTION
    long = [f"{name}: {size} lines" for name, size in sizes.items() if size > LONG]
    assert len(long) <= LONG_SHARE * len(sizes), long
