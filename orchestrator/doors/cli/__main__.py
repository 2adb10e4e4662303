"""`python -m toolfleet.orchestrator.doors.cli`: the same command, for processes that start others of it."""

from toolfleet.orchestrator.doors.cli import main

main()
