"""`toolfleet worker`: hands over to the workers' own command, which the orchestrator must not import."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import typer

CONTEXT_SETTINGS: Final[dict[str, Any]] = {"allow_extra_args": True, "ignore_unknown_options": True}


def worker(context: typer.Context) -> None:
    """Serve the tools of one pool until SIGTERM or Ctrl-C: toolfleet worker --pool io --import my_tools."""
    # -P: a folder called `workers` beside the user must not be taken for ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "workers", *context.args])  # noqa: S606  # our own module
