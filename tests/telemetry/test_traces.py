"""Traces of real orchestrators and workers, as a collector gets them over OTLP."""

from __future__ import annotations

import asyncio
import signal

TWO_TURNS = 'call add {"a": 1, "b": 2} call add {"a": 3, "b": 4} call add_blocking {"a": 5, "b": 6}'


def named(spans, *names):
    return [span for span in spans if span.name in names]


def of_run(spans, run_id):
    return [span for span in spans if span.attributes.get("toolfleet.run_id") == run_id]


def below(spans, parent):
    return [span for span in spans if (span.trace_id, span.parent) == parent.context]


def must_have_no_orphan(spans):
    known = {span.span_id for span in spans}
    assert [span.name for span in spans if span.parent and span.parent not in known] == []


def root_of(collector, run_id):
    spans = collector.until(lambda spans: named(of_run(spans, run_id), "invoke_agent"))
    [root] = named(of_run(spans, run_id), "invoke_agent")
    return root


async def asked(asker, do, **ask):
    return await asyncio.to_thread(asker.ask, do, **ask)


async def test_T1_a_run_is_one_trace_with_its_replies_its_calls_and_their_worker_halves(traced, collector):
    with traced() as asker:
        done = await asked(asker, "run", question=TWO_TURNS)
        root = await asyncio.to_thread(root_of, collector, done["id"])
        spans = await asyncio.to_thread(
            collector.until,
            lambda spans: len([each for each in spans if each.trace_id == root.trace_id]) >= 12 and spans,
        )
    trace = [span for span in spans if span.trace_id == root.trace_id]
    chats = [span for span in below(trace, root) if span.name.startswith("chat ")]
    calls = [span for span in below(trace, root) if span.name.startswith("execute_tool ")]
    assert len(chats) == 2
    assert len(calls) == 3
    assert len(trace) == 12
    assert (root.kind, {chat.kind for chat in chats}, {call.kind for call in calls}) == (
        "internal",
        {"client"},
        {"internal"},
    )
    assert root.parent == ""
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
    for chat in chats:
        assert chat.attributes["gen_ai.operation.name"] == "chat"
        assert chat.attributes["gen_ai.provider.name"] == "openai"
        assert chat.name == f"chat {chat.attributes['gen_ai.request.model']}"
        assert chat.attributes["gen_ai.request.stream"] is True
    assert [chat.attributes["toolfleet.turn"] for chat in sorted(chats, key=lambda chat: chat.began_ns)] == [1, 2]
    for call in calls:
        assert call.attributes["gen_ai.operation.name"] == "execute_tool"
        assert call.name == f"execute_tool {call.attributes['gen_ai.tool.name']}"
        halves = {span.name: span for span in below(trace, call)}
        sent, processed = halves["send io"], halves["process io"]
        assert (sent.kind, sent.service) == ("producer", "orchestrator")
        assert (processed.kind, processed.service) == ("consumer", "worker")
        assert processed.links == [sent.context]
        assert processed.attributes["messaging.operation.type"] == "process"
        assert call.began_ns <= processed.began_ns <= processed.ended_ns <= call.ended_ns
    must_have_no_orphan(trace)


async def test_T2_the_callers_span_is_the_parent_and_its_baggage_reaches_the_tool_alone(traced, collector):
    with traced() as asker:
        done = await asked(asker, "run", question="call carried {} then say", span="mine", tenant="acme")
        root = await asyncio.to_thread(root_of, collector, done["id"])
        spans = await asyncio.to_thread(collector.until, lambda spans: named(spans, "mine") and spans)
    [mine] = named(spans, "mine")
    assert root.parent == mine.span_id
    assert root.trace_id == mine.trace_id
    assert "carried: acme True" in done["answer"]
    assert done["seen"]
    assert set(done["seen"]) == {"{}"}


async def test_T3_a_killed_orchestrators_run_ends_in_the_same_trace_without_orphans(traced, collector, tmp_path):
    marker, gate = tmp_path / "began", tmp_path / "gate"
    question = f'call job {{"marker": "{marker}", "until": "{gate}"}} call add {{"a": 1, "b": 2}}'
    with traced() as other:
        with traced() as first:
            run_id = await asked(first, "start", question=question)
            # What was recorded and is not exported yet is lost with its process.
            await asyncio.to_thread(
                collector.until,
                lambda spans: (
                    named(of_run(spans, run_id), "begin job") and named(of_run(spans, run_id), "execute_tool add")
                ),
            )
            await asyncio.to_thread(first.kill)
        gate.touch()
        assert (await asked(other, "wait", id=run_id))["state"] == "done"
        root = await asyncio.to_thread(root_of, collector, run_id)
        await asyncio.to_thread(
            collector.until, lambda spans: named(of_run(spans, run_id), "process long") and named(spans, "adopt_run")
        )
    spans = collector.trace_of(root)
    assert named(spans, "adopt_run")[-1].links == [root.context]
    [call] = named(spans, "execute_tool job")
    assert below(spans, call)
    assert call.parent == root.span_id
    must_have_no_orphan(spans)


async def test_T3_a_call_that_is_delivered_twice_is_linked_to_its_lost_attempt(traced, fleet, collector, tmp_path):
    marker, gate = tmp_path / "began", tmp_path / "gate"
    question = f'call job {{"marker": "{marker}", "until": "{gate}"}}'
    with traced() as asker:
        run_id = await asked(asker, "start", question=question)
        await asyncio.to_thread(collector.until, lambda spans: named(of_run(spans, run_id), "begin job"))
        [long] = [worker for worker in fleet.workers if worker.pool == "long" and worker.process.poll() is None]
        long.process.send_signal(signal.SIGKILL)
        fleet.start_worker("long")
        await asyncio.to_thread(collector.until, lambda spans: len(named(of_run(spans, run_id), "begin job")) > 1)
        gate.touch()
        assert (await asked(asker, "wait", id=run_id))["state"] == "done"
        root = await asyncio.to_thread(root_of, collector, run_id)
        await asyncio.to_thread(collector.until, lambda spans: len(named(of_run(spans, run_id), "process long")) == 2)
    spans = collector.trace_of(root)
    lost, second = sorted(named(spans, "process long"), key=lambda span: span.attributes["toolfleet.attempt"])
    assert (lost.attributes["error.type"], lost.is_error) == ("crashed", True)
    assert lost.context in second.links
    assert not second.is_error
    assert marker.read_text() == "xx"
    must_have_no_orphan(spans)


async def test_T3_a_resumed_run_goes_on_in_its_trace_linked_to_what_it_was_and_to_its_resumer(traced, collector):
    with traced() as asker:
        done = await asked(asker, "run", question='call add {"a": 1, "b": 2}', span="on monday")
        assert await asked(asker, "resume", id=done["id"], question='call add {"a": 3, "b": 4}', span="on thursday")
        await asyncio.to_thread(
            collector.until,
            lambda spans: len(named(of_run(spans, done["id"]), "invoke_agent")) == 2 and named(spans, "on thursday"),
        )
    first, second = sorted(named(of_run(collector.spans, done["id"]), "invoke_agent"), key=lambda span: span.began_ns)
    [monday], [thursday] = named(collector.spans, "on monday"), named(collector.spans, "on thursday")
    assert second.trace_id == first.trace_id == monday.trace_id != thursday.trace_id
    assert second.parent == first.span_id
    assert second.links == [first.context, thursday.context]
    assert first.ended_ns <= second.began_ns


async def test_T4_a_job_is_seen_while_it_runs_and_its_progress_is_events(traced, collector, tmp_path):
    gate = tmp_path / "gate"
    with traced(OTEL_BSP_SCHEDULE_DELAY="600000") as asker:  # ten minutes: what is seen was exported on purpose
        question = f'call job {{"marker": "{tmp_path / "began"}", "until": "{gate}"}} call reporting_job {{}}'
        run_id = await asked(asker, "start", question=question)
        spans = await asyncio.to_thread(
            collector.until, lambda spans: (named(of_run(spans, run_id), "begin job")) and spans
        )
        [begun] = named(of_run(spans, run_id), "begin job")
        assert not gate.exists()
        assert begun.attributes["toolfleet.worker"].startswith("long")
        gate.touch()
        assert (await asked(asker, "wait", id=run_id))["state"] == "done"
    spans = await asyncio.to_thread(
        collector.until, lambda spans: len(named(of_run(spans, run_id), "process long")) == 2 and spans
    )
    [reported] = [span for span in named(of_run(spans, run_id), "process long") if span.events]
    assert reported.events[-1] == ("progress", {"fraction": 0.5})
    assert begun.links == [
        span.context for span in named(of_run(spans, run_id), "process long") if span is not reported
    ]


async def test_T5_what_waits_or_was_decided_against_is_no_error_and_failures_say_their_kind(
    traced, collector, tmp_path
):
    gate = tmp_path / "gate"
    failing = 'call fail {"message": "x"} call refuse {"message": "x"} call nothing {} call add {"a": "x", "b": 1}'
    waiting = f'call busy_once {{"marker": "{tmp_path / "busy"}"}} call told_that_limited {{}}'
    with traced() as asker:
        failed = (await asked(asker, "run", question=failing))["id"]
        waited = (await asked(asker, "run", question=waiting))["id"]
        denied = await asked(asker, "start", question='call transfer {"amount": 3}')
        await asked(asker, "deny", id=denied)
        cancelled = await asked(
            asker, "start", question=f'call job {{"marker": "{tmp_path / "began"}", "until": "{gate}"}}'
        )
        await asyncio.to_thread(collector.until, lambda spans: named(of_run(spans, cancelled), "begin job"))
        assert await asked(asker, "cancel", id=cancelled) == "cancelled"
        for run_id in (failed, waited, denied, cancelled):
            await asyncio.to_thread(root_of, collector, run_id)
        await asyncio.to_thread(
            collector.until,
            lambda spans: (
                named(of_run(spans, cancelled), "process long") and len(named(of_run(spans, waited), "process io")) == 3
            ),
        )
    calls = {
        span.attributes["gen_ai.tool.name"]: span for span in of_run(collector.spans, failed) if "execute" in span.name
    }
    assert {name: span.attributes["error.type"] for name, span in calls.items()} == {
        "fail": "error",
        "refuse": "error",
        "nothing": "unknown_tool",
        "add": "bad_arguments",
    }
    assert all(span.is_error and not span.status_message for span in calls.values())
    fine = [span for run_id in (waited, denied, cancelled) for span in of_run(collector.spans, run_id)]
    assert [(span.name, span.attributes) for span in fine if span.is_error or "error.type" in span.attributes] == []
    outcomes = {span.attributes.get("toolfleet.outcome") for span in fine}
    assert {"denied", "cancelled", "limit", "rate_limited", "returned"} <= outcomes


SECRETS = (
    'call unlock {"door": "door-argument", "code": "secret-1234"} call fail {"message": "failure-text"} '
    'call reporting_job {} say "spoken-words"'
)
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


async def test_T6_spans_hold_no_arguments_results_or_messages_unless_asked_for_and_never_secrets(traced, collector):
    words = [b"door-argument", b"is open", b"failure-text", b"spoken-words", b"nobody is to read"]
    with traced() as asker:
        quiet = (await asked(asker, "run", question=SECRETS))["id"]
        await asyncio.to_thread(root_of, collector, quiet)
        await asyncio.to_thread(collector.until, lambda spans: len(named(of_run(spans, quiet), "process io")) == 2)
    everything = b"".join(collector.raw)
    assert [word for word in words if word in everything] == []
    assert b"secret-1234" not in everything
    with traced(**{CONTENT: "SPAN_ONLY"}) as asker:
        shown = (await asked(asker, "run", question=SECRETS))["id"]
        await asyncio.to_thread(root_of, collector, shown)
    spans = of_run(collector.spans, shown)
    [call] = named(spans, "execute_tool unlock")
    assert call.attributes["gen_ai.tool.call.arguments"] == '{"door": "door-argument", "code": "***"}'
    assert call.attributes["gen_ai.tool.call.result"] == "door-argument is open"
    chat = next(span for span in spans if span.name.startswith("chat "))
    assert "spoken-words" in chat.attributes["gen_ai.output.messages"]
    assert [span.name for span in spans if "secret-1234" in chat.attributes["gen_ai.output.messages"]] == []


async def test_T8_a_forged_traceparent_beside_the_call_is_ignored(fleet, collector, post):
    genuine, forged = f"00-{'1' * 32}-{'2' * 16}-01", f"00-{'e' * 32}-{'f' * 16}-01"
    call = post.call("carried", traceparent=genuine, baggage="tenant=acme")
    post.send(call, traceparent=forged, tracestate="evil=1", baggage="tenant=evil")
    _, result = await post.result()
    assert result.content == "acme True"
    spans = await asyncio.to_thread(
        collector.until, lambda spans: [s for s in spans if s.attributes.get("messaging.message.id") == call.call_id]
    )
    [span] = [each for each in spans if each.attributes.get("messaging.message.id") == call.call_id]
    assert (span.trace_id, span.parent) == ("1" * 32, "2" * 16)
    assert "e" * 32 not in {each.trace_id for each in collector.spans}
