"""Live progress: a line per finished thing, and a spinner that says what is being done now."""

from types import TracebackType

from rich.markup import escape
from rich.status import Status

from reforward.app.events import Calibrated, CouldNot, Event, Judged, Promoted, Proposed, Working
from reforward.cli import show
from reforward.domain.record import short


class Live:
    """Prints events as they come. A context manager, so that the spinner always ends."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.status: Status | None = None

    def __enter__(self) -> "Live":
        if not self.quiet:
            self.status = show.console.status("starting")
            self.status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.status:
            self.status.stop()

    def __call__(self, event: Event) -> None:
        if self.quiet:
            return
        match event:
            case Working():
                self._now(event.what)
            case Calibrated():
                show.noise_line(event)
            case Proposed():
                self._now(f"candidate {event.order + 1}: {event.idea.reason}")
            case CouldNot():
                show.console.print(f"  skipped {escape(event.unable.what)}: {escape(event.unable.remedy)}")
            case Judged():
                show.verdict_line(event.verdict, event.reason, event.seconds)
            case Promoted():
                gain = show.percent(event.verdict.gain)
                show.console.print(f"[bold green]  {short(event.candidate.id)} is the incumbent now: {gain}[/]")

    def _now(self, what: str) -> None:
        if self.status and show.console.is_terminal:
            self.status.update(escape(what))
        else:
            show.console.print(f"[dim]  .. {escape(what)}[/]")
