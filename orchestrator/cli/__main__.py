"""`python -m orchestrator.cli`: the same command, for processes that start others of it."""

from orchestrator.cli import main

main()
