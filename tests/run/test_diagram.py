from pathlib import Path

from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.status import diagram
from toolfleet.orchestrator.status.call_state import CallState

DOCS = (Path(__file__).parents[2] / "docs" / "slow-tools.md").read_text()


def test_the_documented_diagrams_are_those_of_the_code():
    for text in (diagram.of_runs(), diagram.of_calls()):
        assert f"```mermaid\n{text}\n```" in DOCS, "print them with `python -m toolfleet.orchestrator.status.diagram`"


def test_every_state_of_a_run_is_in_its_diagram():
    text = diagram.of_runs()
    assert [state for state in State if f"{state}" not in text] == []


def test_every_state_of_a_call_is_in_its_diagram():
    text = diagram.of_calls()
    assert [state for state in CallState if f"{state}" not in text] == []
