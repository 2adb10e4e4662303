"""The `toolfleet` command: one file for each thing it does. Prints for people, or JSON for programs."""

import os
import signal
from types import FrameType

from toolfleet.garbage import begin_rarely

__all__ = ["main"]


def main() -> None:
    """Run the command. Ctrl-C is quiet from here on, while the modules are still read."""
    has_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if has_ctrl_c:
        signal.signal(signal.SIGINT, _stopped_unbegun)
    begin_rarely()
    from toolfleet.orchestrator.doors.cli.main import main as run_command  # noqa: PLC0415  # takes a second

    if has_ctrl_c:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


def _stopped_unbegun(_number: int, _frame: FrameType | None) -> None:
    # Not by an exception: one that is raised in the midst of an import is printed wherever that catches it.
    os.write(2, b"toolfleet: stopped\n")
    os._exit(128 + signal.SIGINT)
