"""Many runs from a file, one line each, into a file: streamed, bounded, gone on with after any interruption."""

from toolfleet.orchestrator.batch.identity import Identity
from toolfleet.orchestrator.batch.input import Input, opened_input
from toolfleet.orchestrator.batch.lines import read_lines
from toolfleet.orchestrator.batch.notes import BatchCancelled, BatchNotes
from toolfleet.orchestrator.batch.output import Output
from toolfleet.orchestrator.batch.predecessor import Predecessor
from toolfleet.orchestrator.batch.records import AskedLine, RefusedLine
from toolfleet.orchestrator.batch.runner import BatchRunner, Manner
from toolfleet.orchestrator.batch.summary import Prices, Summary, Tally

__all__ = [
    "AskedLine",
    "BatchCancelled",
    "BatchNotes",
    "BatchRunner",
    "Identity",
    "Input",
    "Manner",
    "Output",
    "Predecessor",
    "Prices",
    "RefusedLine",
    "Summary",
    "Tally",
    "opened_input",
    "read_lines",
]
