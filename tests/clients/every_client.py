"""What each client gets from a fleet, judged by a ledger of what the tools did, not by the client's word alone."""

from __future__ import annotations

import json

from tests.clients.started import Started
from tests.truth.ledger import Ledger


def asked(ledger: Ledger, tool: str, key: str) -> str:
    """A call as a question spells it out."""
    return f"call {tool} {json.dumps({'ledger': str(ledger.path), 'key': key})}"


class EveryClient:
    """The same for all: subclasses bring a fixture `client`."""

    def test_the_fleets_tools_run_before_it_hears_an_answer(self, client: Started, ledger: Ledger) -> None:
        outcome = client.ask("complete", question=asked(ledger, "charge", "a"))
        assert outcome["text"].endswith("charge: charged a"), outcome
        assert outcome["ended"] == "stop"
        assert outcome["tokens"] > 0
        assert ledger.effects == {"a": 1}

    def test_a_streamed_answer_comes_in_pieces(self, client: Started, ledger: Ledger) -> None:
        outcome = client.ask("stream", question='say "Well." ' + asked(ledger, "charge", "a"))
        assert outcome["text"].startswith("Well."), outcome
        assert outcome["text"].endswith("charge: charged a")
        assert outcome["ended"] == "stop"
        assert outcome["pieces"] > 1  # what comes together may be told together
        assert ledger.effects == {"a": 1}

    def test_its_own_tools_are_its_own_and_nothing_of_the_fleets_is_done_twice(
        self, client: Started, ledger: Ledger
    ) -> None:
        self._mixed("mixed", client, ledger)

    def test_its_own_tools_are_its_own_when_it_streams_too(self, client: Started, ledger: Ledger) -> None:
        self._mixed("mixed_streamed", client, ledger)

    def test_an_answer_of_a_type_is_one(self, client: Started, ledger: Ledger) -> None:
        answer = json.dumps(json.dumps({"total": 5}))
        outcome = client.ask("structured", question=f"{asked(ledger, 'charge', 'a')} then say {answer}")
        assert outcome.get("value") == {"total": 5}, outcome
        assert ledger.effects == {"a": 1}

    def test_a_key_that_is_none_is_said_to_be_none(self, client: Started, ledger: Ledger) -> None:
        outcome = client.ask("complete", question=asked(ledger, "charge", "a"), key="tf_0000000000000000")
        assert outcome.get("status") == 401, outcome
        assert ledger.effects == {}

    def test_a_model_that_is_not_there_is_named(self, client: Started, ledger: Ledger) -> None:
        outcome = client.ask("complete", question=asked(ledger, "charge", "a"), model="gpt-9")
        assert outcome.get("status") == 404, outcome
        assert "gpt-9" in outcome["message"]
        assert ledger.effects == {}

    async def test_what_it_breaks_off_is_called_off(
        self, client: Started, ledger: Ledger, called_off: list[Ledger]
    ) -> None:
        """In the end: a client that may come back is given a moment to do so."""
        begun = client.ask("begin", question='say "Wait." ' + asked(ledger, "hold", "a"))
        assert begun.get("text", "").startswith("Wait."), begun
        await ledger.has("held:a")
        client.ask("abort")
        called_off.append(ledger)

    def _mixed(self, verb: str, client: Started, ledger: Ledger) -> None:
        outcome = client.ask(
            verb,
            question=f'{asked(ledger, "charge", "a")} and call lookup {{"item": "tea"}} '
            f"then {asked(ledger, 'charge', 'b')}",
        )
        assert outcome["text"].splitlines()[-3:] == ["charge: charged a", "lookup: 4 EUR", "charge: charged b"], outcome
        assert outcome["looked_up"] == [{"item": "tea"}]
        assert ledger.effects == {"a": 1, "b": 1}
