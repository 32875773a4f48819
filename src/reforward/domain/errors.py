"""The errors a user can meet. Each says what is wrong, which value, and the remedy."""


class ReforwardError(Exception):
    """Root of every error that reforward raises on purpose; `exit_code` is what the CLI returns for it."""

    exit_code = 1


class BadInput(ReforwardError):
    """A file, argument or configuration from outside cannot be used as it is."""

    exit_code = 2


class NoSuchJob(BadInput):
    """A guest asked after a job that its run does not know."""


class Unavailable(ReforwardError):
    """The machine lacks something that this action needs (a compiler, a package, a namespace)."""

    exit_code = 3


class EngineLost(ReforwardError):
    """The engine's own processes died or stopped answering; restarting it is the remedy."""

    exit_code = 4


class LedgerCorrupt(ReforwardError):
    """A stored row or blob does not match its own id."""

    exit_code = 5


class CandidateFailed(ReforwardError):
    """A candidate's own code broke a rule of its stage; becomes a `Failed` record, never a crash of ours."""

    exit_code = 6

    def __init__(self, stage: str, reason: str, log: str = "") -> None:
        super().__init__(f"candidate failed at stage {stage!r}: {reason}")
        self.stage = stage
        self.reason = reason
        self.log = log
