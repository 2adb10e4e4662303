"""The circuit breaker: its table in every order of events, and its promise before a real server."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from toolfleet.messages import UserMessage
from toolfleet.orchestrator.errors import ModelRefused, ModelReplyInvalid, ModelUnreachable
from toolfleet.orchestrator.models import REHEARSAL_MODEL, FallbackModel, OpenAIChat, RehearsalServer, reply
from toolfleet.orchestrator.models.breaker import TRANSITIONS, Breaker, Circuit, CircuitEvent, CircuitState
from toolfleet.orchestrator.models.rehearsal import CutStream, ErrorStatus, Garbage, Hang

HELLO = [UserMessage(content="Who are you?")]
OPENS_AFTER, OPEN_S = 3, 10.0


def after(circuit, *events, now_s=0.0):
    for event in events:
        circuit = circuit.on(event, now_s, opens_after=OPENS_AFTER, open_s=OPEN_S)
    return circuit


def test_every_state_has_a_row_that_leads_to_states():
    assert set(TRANSITIONS) == set(CircuitState)
    assert {state for row in TRANSITIONS.values() for state in row.values()} == set(CircuitState)


def test_an_event_that_cannot_happen_is_a_bug():
    with pytest.raises(KeyError):
        after(Circuit(), CircuitEvent.TRIED_AGAIN)


@given(
    st.lists(st.sampled_from(sorted(CircuitEvent)), max_size=40), st.lists(st.floats(0, 30), min_size=40, max_size=40)
)
def test_whatever_happens_the_circuit_is_closed_or_names_when_it_is_tried_again(events, pauses):
    circuit, now_s = Circuit(), 0.0
    for event, pause_s in zip(events, pauses, strict=False):
        now_s += pause_s
        if event not in TRANSITIONS[circuit.state]:
            continue
        circuit = after(circuit, event, now_s=now_s)
        if circuit.state is CircuitState.CLOSED:
            assert circuit.failures < OPENS_AFTER
            assert circuit.may_ask(now_s)
        if circuit.state is CircuitState.OPEN:
            assert circuit.open_until_s <= now_s + OPEN_S
            assert circuit.may_ask(circuit.open_until_s)
        if event is CircuitEvent.ANSWERED:
            assert circuit == Circuit()


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


STEPS = st.tuples(st.sampled_from(["ask", "begins", "fails", "answers", "is given up", "wait"]), st.integers(0, 9))


class Replies:
    """A breaker and the replies that are under way, each by its probe number."""

    def __init__(self):
        self.clock = Clock()
        self.breaker = Breaker("m", opens_after=2, open_s=OPEN_S, clock=self.clock)
        self.under_way = []

    def ask(self):
        was = self.breaker.circuit.state
        try:
            self.under_way.append(self.breaker.admit())
        except ModelUnreachable:
            assert was is not CircuitState.CLOSED
        else:
            assert was is not CircuitState.PROBING

    def become(self, step, which):
        probe = self.under_way[which % len(self.under_way)]
        if step == "begins":
            self.breaker.began(probe)
            return
        self.under_way.remove(probe)
        if step == "fails":
            self.breaker.note_failure(probe, "x")
        elif step == "answers":
            self.breaker.note_answer()
        else:
            self.breaker.note_given_up(probe)


@given(st.lists(STEPS, max_size=60))
def test_whatever_becomes_of_replies_nobody_waits_for_a_probe_that_is_not_under_way(steps):
    replies = Replies()
    for step, which in steps:
        if step == "wait":
            replies.clock.now_s += OPEN_S
        elif step == "ask":
            replies.ask()
        elif replies.under_way:
            replies.become(step, which)
        if replies.breaker.circuit.state is CircuitState.PROBING:
            assert replies.breaker._probes in replies.under_way


# --- before a real server -------------------------------------------------------------------------------------------


@pytest.fixture
async def opened(quick):
    """Opens a server with faults and a model that asks once and gives up after two failed replies."""
    closing = []

    async def opened(*faults, **options):
        server = await RehearsalServer(faults=faults).__aenter__()
        http = replace(quick, **{"attempts": 1, "opens_after": 2, "open_s": 60.0} | options)
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal", http=http)
        closing.append((server, model))
        return server, model

    yield opened
    for server, model in closing:
        await model.aclose()
        await server.__aexit__(None, None, None)


async def fails(model, kind=ModelUnreachable):
    with pytest.raises(kind) as failure:
        await reply(model, HELLO)
    return str(failure.value)


@pytest.mark.parametrize(
    "fault",
    [
        ErrorStatus(503),
        ErrorStatus(429, "slow down", retry_after="3600"),
        CutStream(0),
        CutStream(3),
        Hang(),
        Garbage(),
    ],
    ids=repr,
)
async def test_a_model_that_fails_in_a_row_is_not_asked_any_more(opened, fault):
    server, model = await opened(fault, fault, silence_s=0.2)
    for _ in range(2):
        await fails(model, (ModelUnreachable, ModelReplyInvalid))
    said = await fails(model)
    assert server.request_count == 2
    assert f"{REHEARSAL_MODEL} at {server.base_url} is not asked before" in said
    assert "UTC (in 60 s), since 2 replies in a row failed; the last failure: http://127.0.0.1" in said


async def test_requests_that_are_refused_say_nothing_against_the_model(opened):
    server, model = await opened(*[ErrorStatus(400, type="invalid_request_error")] * 5)
    for _ in range(5):
        await fails(model, ModelRefused)
    assert server.request_count == 5


async def test_failures_that_are_not_in_a_row_leave_the_model_alone(opened):
    _, model = await opened(ErrorStatus(503))
    await fails(model)
    await reply(model, HELLO)
    assert model._breaker.circuit == Circuit()


async def test_a_rate_limit_that_passes_within_the_retries_is_no_failure(opened):
    busy = ErrorStatus(429, retry_after="0")
    server, model = await opened(*[busy] * 6, attempts=7)
    await reply(model, HELLO)
    assert server.request_count == 7
    assert model._breaker.circuit == Circuit()


async def test_the_next_model_takes_over_at_once(opened):
    first_server, first = await opened(*[ErrorStatus(503)] * 9)
    second_server, second = await opened()
    model = FallbackModel([first, second])
    for _ in range(5):
        await reply(model, HELLO)
    assert (first_server.request_count, second_server.request_count) == (2, 5)


async def test_after_the_pause_one_reply_tries_and_the_others_follow_it(opened):
    server, model = await opened(ErrorStatus(503), ErrorStatus(503), open_s=0.05)
    for _ in range(2):
        await fails(model)
    await until_it_may_be_asked(model)
    answers = await asyncio.gather(*(reply(model, HELLO) for _ in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers[1:]] == [ModelUnreachable] * 4
    assert "while one reply tries whether it works again" in str(answers[1])
    assert server.request_count == 3
    await asyncio.gather(*(reply(model, HELLO) for _ in range(5)))


async def test_a_probe_that_fails_opens_the_circuit_again(opened):
    server, model = await opened(*[ErrorStatus(503)] * 3, open_s=0.05)
    for _ in range(2):
        await fails(model)
    await until_it_may_be_asked(model)
    await fails(model)
    assert model._breaker.circuit.state is CircuitState.OPEN
    assert server.request_count == 3


@pytest.mark.parametrize("fault", [Hang(), None], ids=["before its first event", "after its first event"])
async def test_a_probe_whose_caller_goes_away_does_not_block_the_others(opened, fault):
    _, model = await opened(ErrorStatus(503), ErrorStatus(503), *([fault] if fault else []), open_s=0.05)
    for _ in range(2):
        await fails(model)
    await until_it_may_be_asked(model)
    asked = asyncio.create_task(first_event(model))
    await asyncio.wait([asked], timeout=0.2)
    asked.cancel()
    await asyncio.wait([asked])
    assert (await reply(model, HELLO)).message.content


async def until_it_may_be_asked(model):
    await asyncio.sleep(max(0.0, model._breaker.circuit.open_until_s - time.monotonic()))


async def first_event(model):
    async with aclosing(model.stream(HELLO, [])) as events:
        await anext(events)


async def test_a_breaker_that_is_switched_off_never_opens(opened):
    server, model = await opened(*[ErrorStatus(503)] * 9, opens_after=0)
    for _ in range(9):
        await fails(model)
    assert server.request_count == 9
