"""The entry point: errors made for people become one line and an exit code. What takes time to import comes later."""

import sys
from typing import NoReturn

from reforward.domain.errors import ReforwardError, Unavailable

INTERRUPTED = 130


def main() -> None:
    """Run one verb."""
    try:
        from reforward.cli.verbs import app

        app()
    except ReforwardError as error:
        print(f"reforward: {error}", file=sys.stderr)
        log_tail = getattr(error, "log", "")
        if log_tail:
            print(log_tail, file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"reforward: {error}; check the path, its rights and the free disk", file=sys.stderr)
        sys.exit(Unavailable.exit_code)
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _interrupted()
        raise


def _interrupted() -> NoReturn:
    print(
        "reforward: interrupted; what was finished is in the ledger, an optimize goes on with --resume", file=sys.stderr
    )
    sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
