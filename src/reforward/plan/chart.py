"""The plot of a plan: tokens a second and GPU over tokens a second of a user, on a terminal, as an image, or as a page."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from reforward.domain.errors import BadInput, Unavailable

WIDTH, HEIGHT = 64, 14
MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One configuration at growing load, the last point where the SLA still holds."""

    name: str
    users: Sequence[float]
    """Output tokens a second of a user."""
    gpus: Sequence[float]
    """Output tokens a second and GPU."""


def terminal(lines: Sequence[Line]) -> str:
    """A scatter plot in letters, one a configuration; `*` is the pick, right and up is better."""
    points = [point for row, line in enumerate(lines) for point in _points(row, line)]
    if not points:
        return ""
    most_x, most_y = max(x for x, _, _ in points) or 1.0, max(y for _, y, _ in points) or 1.0
    field = [[" "] * WIDTH for _ in range(HEIGHT)]
    for x, y, mark in reversed(points):
        field[HEIGHT - 1 - round(y / most_y * (HEIGHT - 1))][round(x / most_x * (WIDTH - 1))] = mark
    edges = [f"{most_y:.4g}", *[""] * (HEIGHT - 2), "0"]
    drawn = [f"{edge:>8} |" + "".join(cells) for edge, cells in zip(edges, field, strict=True)]
    legend = "  ".join(f"{MARKS[row % len(MARKS)]} {line.name}" for row, line in enumerate(lines))
    axis = f"{'':>8} +{'-' * WIDTH}\n{'0':>10}{f'{most_x:.4g}':>{WIDTH}}"
    return "\n".join(["tok/s/GPU over tok/s/user, load rising to where the SLA still holds", *drawn, axis, legend])


def _points(row: int, line: Line) -> list[tuple[float, float, str]]:
    """(x, y, mark) of one line; the first line's last point is the pick."""
    marks = [MARKS[row % len(MARKS)]] * len(line.users)
    if row == 0:
        marks[-1] = "*"
    return list(zip(line.users, line.gpus, marks, strict=True))


def check_name(path: Path) -> str:
    """The ending of a name, if a plan can be drawn into it."""
    kind = path.suffix.lower()
    if kind not in (".png", ".svg", ".html"):
        raise BadInput(
            f"cannot write a plan as {path.suffix!r}; end the name of {path.name} in .html, .png, .svg or .json"
        )
    return kind


def write(path: Path, title: str, lines: Sequence[Line], table: Sequence[Mapping[str, str]]) -> None:
    """`.png` or `.svg`: the plot; `.html`: the plot above the table. `BadInput` for another ending."""
    kind = check_name(path)
    if kind == ".html":
        path.write_text(_page(title, lines, table), encoding="utf-8")
        return
    path.write_bytes(_drawn(title, lines, kind[1:]))


def _drawn(title: str, lines: Sequence[Line], kind: str) -> bytes:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Unavailable(
            f"matplotlib draws plots, and is not installed; pip install 'reforward[plan]' ({error})"
        ) from error
    figure: Any = Figure(figsize=(8, 5), layout="constrained")
    axes: Any = figure.add_subplot()
    for row, line in enumerate(lines):
        axes.plot(line.users, line.gpus, marker="o", markersize=4, linewidth=1, label=line.name)
        if row == 0:
            axes.plot(line.users[-1:], line.gpus[-1:], marker="*", markersize=14, color="black", linestyle="none")
    axes.set(xlabel="output tokens/s of a user (1 / median TPOT)", ylabel="output tokens/s per GPU", title=title)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    out = BytesIO()
    figure.savefig(out, format=kind, dpi=130)
    return out.getvalue()


def _page(title: str, lines: Sequence[Line], table: Sequence[Mapping[str, str]]) -> str:
    from jinja2 import Environment, PackageLoader

    page = Environment(loader=PackageLoader("reforward.plan", ""), autoescape=True).get_template("page.html.j2")
    image = b64encode(_drawn(title, lines, "png")).decode() if lines else ""
    return page.render(title=title, image=image, table=table)
