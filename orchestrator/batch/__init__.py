"""Many runs from a file, one line each, into a file: streamed, bounded, gone on with after any interruption."""

from orchestrator.batch.identity import Identity
from orchestrator.batch.input import Input, opened_input
from orchestrator.batch.lines import read_lines
from orchestrator.batch.output import Output
from orchestrator.batch.records import Asked, Refused
from orchestrator.batch.runner import BatchRunner, Manner
from orchestrator.batch.summary import Prices, Summary, Tally

__all__ = [
    "Asked",
    "BatchRunner",
    "Identity",
    "Input",
    "Manner",
    "Output",
    "Prices",
    "Refused",
    "Summary",
    "Tally",
    "opened_input",
    "read_lines",
]
