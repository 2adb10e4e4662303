"""How a command of ours ends, as a number for whoever started it. docs/cli.md has the same table for people."""

from __future__ import annotations

import signal
from enum import IntEnum

from toolfleet.errors import InvalidSettings, ToolfleetError, WorkerMisconfigured


class ExitStatus(IntEnum):
    """The exit statuses, the same for every command."""

    DONE = 0
    """Done; also a service that was told to stop, and has stopped in order."""
    FAILED = 1
    """An error, said in one line on standard error. The same command may succeed another time."""
    USAGE = 2
    """The command line cannot be meant: it names the option, and nothing was begun."""
    RUNS_ALREADY = 75
    """Another `toolfleet up` runs this fleet: EX_TEMPFAIL of sysexits.h. It says how to join or replace it."""
    CONFIGURATION = 78
    """A setting is wrong, unknown, or not that of the fleet: EX_CONFIG of sysexits.h. Starting again will not help."""
    HUNG_UP = 128 + signal.SIGHUP
    """Cut short when its terminal was closed."""
    INTERRUPTED = 128 + signal.SIGINT
    """Cut short by Ctrl-C."""
    TERMINATED = 128 + signal.SIGTERM
    """Cut short by SIGTERM."""


def status_of(error: ToolfleetError) -> ExitStatus:
    """Return the exit status of a command that ends with this error."""
    is_configuration = isinstance(error, InvalidSettings | WorkerMisconfigured)
    return ExitStatus.CONFIGURATION if is_configuration else ExitStatus.FAILED
