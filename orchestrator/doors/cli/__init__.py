"""The `toolfleet` command: one file for each thing it does. Prints for people, or JSON for programs."""

from toolfleet.orchestrator.doors.cli.main import main

__all__ = ["main"]
