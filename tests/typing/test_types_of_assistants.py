"""Checked by mypy: an assistant has the type of its Protocol. Run by pytest as well, so that it stays true."""

from collections.abc import AsyncIterator
from typing import Protocol, assert_type

from toolfleet import ConversationId
from toolfleet.orchestrator import Agent, Orchestrator, Result, agent_of, asks, assistant, system
from toolfleet.orchestrator.run.updates import RunUpdate


@system("You are brief.")
class Clerk(Protocol):
    @asks("Count the words of {{text}}.")
    async def count(self, text: str) -> int: ...

    async def explain(self, text: str) -> Result[str]: ...

    def pieces(self, text: str) -> AsyncIterator[str]: ...

    def events(self, talk: ConversationId, text: str) -> AsyncIterator[RunUpdate]: ...


def test_an_assistant_is_what_its_protocol_says() -> None:
    clerk = assistant(Clerk, Orchestrator(), tools=["add"], max_turns=3)
    assert_type(clerk, Clerk)
    assert_type(clerk.pieces("x"), AsyncIterator[str])
    assert_type(clerk.events("talk", "x"), AsyncIterator[RunUpdate])
    assert_type(agent_of(Clerk.count), Agent)


def test_wrong_uses_are_errors_of_type() -> None:
    async def never_called(clerk: Clerk) -> None:
        assert_type(await clerk.count("x"), int)
        assert_type((await clerk.explain("x")).answer, str)
        await clerk.count(1)  # type: ignore[arg-type]  # the ignore is an error if mypy finds nothing here
        assistant(Clerk, Orchestrator(), run_id="x")  # type: ignore[call-arg]  # it is refused

    assert callable(never_called)
