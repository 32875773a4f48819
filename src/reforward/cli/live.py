"""Live progress: a line per finished thing, and a spinner that says what is being done now, and for how long."""

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from reforward.app.events import (
    AgentNews,
    Calibrated,
    CouldNot,
    Event,
    Judged,
    Opened,
    Paired,
    Promoted,
    Proposed,
    Working,
)
from reforward.cli import show
from reforward.domain.record import short


class Live:
    """Prints events as they come, to stderr if stdout is JSON. A context manager, so that the spinner always ends.

    Without a terminal there is no spinner. `details` False leaves out why a candidate was refused, for commands that
    say it at the end.
    """

    def __init__(self, *, as_json: bool = False, details: bool = True) -> None:
        self.console: Console = show.errors if as_json else show.console
        self.details, self.doing = details, "starting"
        what = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
        self.spinner = Progress(SpinnerColumn(), TimeElapsedColumn(), what, console=self.console, transient=True)
        self.task = self.spinner.add_task(self.doing, total=None)

    def __enter__(self) -> "Live":
        if self.console.is_terminal:
            self.spinner.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.console.is_terminal:
            self.spinner.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case Working():
                self._now(event.what)
            case Opened():
                self.console.print(f"[bold]{escape(event.what)}[/]")
                if event.warning:
                    self.console.print(f"[yellow]warning:[/] {escape(event.warning)}")
            case Paired():
                self.spinner.update(
                    self.task, description=escape(f"{self.doing}; pair {event.done + 1} of at most {event.most}")
                )
            case Calibrated():
                show.noise_line(self.console, event)
            case Proposed():
                self._now(f"candidate {event.order + 1}: {event.idea.reason}")
            case CouldNot():
                self.console.print(f"  skipped {escape(event.unable.what)}: {escape(event.unable.remedy)}")
            case Judged():
                show.verdict_line(self.console, event, details=self.details)
            case Promoted() | AgentNews():
                self.console.print(_news(event))

    def _now(self, what: str) -> None:
        self.doing = what
        if self.console.is_terminal:
            self.spinner.reset(self.task, description=escape(what))
        else:
            self.console.print(f"[dim]  .. {escape(what)}[/]")


def _news(event: Promoted | AgentNews) -> str:
    if isinstance(event, AgentNews):
        return f"  {escape(event.author)} {escape(event.what)}"
    gain = show.percent(event.verdict.gain)
    return f"[bold green]  {short(event.candidate.id)} is the incumbent now: {gain}[/]"
