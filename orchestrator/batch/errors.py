"""What can be wrong with a batch as a whole. What is wrong with one line is that line's output, never an exception."""

from __future__ import annotations

from toolfleet.errors import CallerError


class InputUnreadable(CallerError):
    """The batch's input cannot be read."""


class OutputUnusable(CallerError):
    """The output file cannot be written, is being written by another process, or holds something else."""


class InvalidBatchId(CallerError):
    """A batch id has characters that have no place in the ids of runs."""
