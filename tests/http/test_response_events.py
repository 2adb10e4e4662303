"""The numbers of a response's events, whatever becomes of the replies that they tell of."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from toolfleet.messages import AssistantMessage, UserMessage
from toolfleet.orchestrator.doors.openai.responses.events import ATTEMPT, LOST, Diverged, ResponseEvents
from toolfleet.orchestrator.doors.openai.responses.pieces import LONGEST, Cutter, pieces_of
from toolfleet.orchestrator.run.events import RUN_EVENT, ModelReplied, RunAdopted, RunResumed, RunStarted, RunStopped
from toolfleet.orchestrator.run.updates import TextArrived, ThoughtArrived

STARTED = RunStarted(run_id="r", messages=(UserMessage(content="?"),), started_unix_s=1.0)
TEXT = "Once upon a time there was an end."


def begun() -> ResponseEvents:
    events = ResponseEvents(STARTED)
    assert [event["sequence_number"] for event in events.begun()] == [0, 1]
    return events


def live(events: ResponseEvents, *parts: str, turn: int = 1, attempt: int = 0):
    came = [TextArrived(run_id="r", text=part) for part in parts]
    return events.heard(turn, attempt, lambda count: came[count:])


def replied(text: str = TEXT, **fields: object) -> ModelReplied:
    return ModelReplied(message=AssistantMessage(content=text), **fields)


@pytest.mark.parametrize("restarts", [-1, 10**30])
def test_an_event_that_somebody_has_made_up_leads_to_no_number_that_cannot_be_written(restarts: int) -> None:
    forged = replied().model_dump_json().replace('"type"', f'"restarts":{restarts},"type"')
    with pytest.raises(ValueError, match="restarts"):
        RUN_EVENT.validate_json(forged)


@given(st.lists(st.text(max_size=40), max_size=12))
def test_a_text_is_cut_in_the_same_places_however_it_comes(parts: list[str]) -> None:
    cutter = Cutter()
    certain = [piece for part in parts for piece in cutter.add(part)]
    whole = pieces_of("".join(parts))
    assert whole[: len(certain)] == certain
    assert len(whole) - len(certain) <= 1
    assert "".join(whole) == "".join(parts)
    assert all(len(piece.strip(" \t\n\r\f\v")) <= LONGEST for piece in whole)


@given(st.text(min_size=1, max_size=120), st.data())
def test_events_are_the_same_live_and_stored_with_the_same_numbers(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    seen, told = begun(), []
    for count in range(1, len(parts) + 1):
        told += live(seen, *parts[:count])
    told += seen.take(replied(text))
    assert told == begun().take(replied(text))


@given(st.text(min_size=1, max_size=60), st.text(max_size=60), st.data())
def test_thoughts_are_the_same_live_and_stored(thoughts: str, text: str, data: st.DataObject) -> None:
    kinds = [(ThoughtArrived, thoughts), (TextArrived, text)]
    came = []
    for kind, whole in kinds:
        cut = data.draw(st.integers(0, len(whole)))
        came += [kind(run_id="r", text=part) for part in (whole[:cut], whole[cut:])]
    seen, told = begun(), []
    for count in range(1, len(came) + 1):
        told += seen.heard(1, 0, lambda begins, count=count: came[begins:count])
    replied_so = ModelReplied(message=AssistantMessage(content=text, thoughts=thoughts))
    told += seen.take(replied_so)
    assert told == begun().take(replied_so)
    items = [event["item"]["type"] for event in told if event["type"] == "response.output_item.done"]
    assert items == ["reasoning", "message"][: 1 + bool(text)]


def test_a_reply_begun_anew_has_numbers_of_its_own_and_another_place_for_its_message() -> None:
    seen = begun()
    void = live(seen, "Once upon ", "a")
    anew = live(seen, "At first ", "all ", attempt=2)
    assert anew[0]["sequence_number"] == 1 + 2 * ATTEMPT + 1
    assert [event["output_index"] for event in (void[0], anew[0])] == [0, 2]
    assert void[0]["item"]["id"] == anew[0]["item"]["id"]
    rest = seen.take(replied("At first all was well.", restarts=2))
    assert [*anew, *rest] == begun().take(replied("At first all was well.", restarts=2))


def test_after_another_took_over_numbers_are_above_all_that_can_have_been_shown() -> None:
    first = begun()
    void = live(first, "Once upon ", "a", attempt=3)
    adopted = begun()
    assert adopted.take(RunAdopted(orchestrator_id="b")) == first.take(RunAdopted(orchestrator_id="b")) == []
    told = adopted.take(replied())
    assert told == first.take(replied())
    assert told[0]["sequence_number"] == 1 + LOST + 1 > void[-1]["sequence_number"]


def test_of_a_reply_that_another_writes_nothing_is_live_here() -> None:
    seen = begun()
    seen.take(RunAdopted(orchestrator_id="b"))
    assert live(seen, "Once upon ", "a") == []


def test_one_that_ends_in_the_midst_of_a_reply_ends_above_what_was_shown_of_it() -> None:
    seen, stored = begun(), begun()
    void = live(seen, "Once upon ", "a")
    stop = RunStopped(state="cancelled", reason="enough")
    [end] = seen.take(stop)
    assert [end] == stored.take(stop)
    assert end["sequence_number"] > void[-1]["sequence_number"]
    assert (end["type"], end["response"]["status"], end["response"]["output"]) == ("response.failed", "cancelled", [])


def test_live_text_waits_until_what_came_before_it_is_told() -> None:
    seen = begun()
    assert live(seen, "Once upon ", "a", turn=2) == []
    assert live(seen, "Once upon ", "a", turn=1)


def test_text_that_is_stored_otherwise_than_it_was_streamed_is_never_told_as_if_it_were_the_same() -> None:
    seen = begun()
    live(seen, "Twice upon ", "a")
    with pytest.raises(Diverged):
        seen.take(replied())
    seen = begun()
    live(seen, "Once upon ", "a")
    with pytest.raises(Diverged):
        seen.take(replied(""))


def test_a_run_that_is_gone_on_with_has_its_further_events_behind_its_end() -> None:
    seen = begun()
    first = seen.take(replied())
    again = seen.take(RunResumed(messages=(UserMessage(content="And?"),)))
    more = seen.take(replied("More."))
    assert [event["type"] for event in (first[-1], again[0], more[-1])] == [
        "response.completed",
        "response.in_progress",
        "response.completed",
    ]
    numbers = [event["sequence_number"] for event in (*first, *again, *more)]
    assert numbers == list(range(2, 2 + len(numbers)))
    assert [item["content"][0]["text"] for item in more[-1]["response"]["output"]] == [TEXT, "More."]
