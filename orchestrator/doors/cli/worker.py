"""`toolfleet worker`: hands over to the workers' own command, which the orchestrator must not import."""

from __future__ import annotations

import os
import signal
import sys

import typer


def worker(context: typer.Context) -> None:
    """Serve the tools of one pool until SIGTERM or Ctrl-C: toolfleet worker --pool io --import my_tools."""
    # Kept for the new program, which would not know yet what to do with it; `python -m toolfleet.workers` takes it up.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # -P: a folder called `toolfleet` beside the user must not be taken for ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "toolfleet.workers", *context.args])  # noqa: S606  # our own module
