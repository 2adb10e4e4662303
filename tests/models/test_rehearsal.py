import json
import math

import aiohttp
import pytest

from toolfleet.errors import PortInUse
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage, UserMessage
from toolfleet.orchestrator.errors import ModelRefused
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer, reply
from toolfleet.orchestrator.models.rehearsal import plan

DEMO_QUESTION = (
    "Which five modules of the standard library define the most functions, which one has the longest function, "
    "and what share of functions has a docstring?"
)
NUMBER_TOOLS = {
    "square_root": {"type": "object", "properties": {"x": {"type": "number"}}},
    "sum": {"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "number"}}}},
}


@pytest.fixture
def converse(tool):
    """Plays a conversation to its end: every call is answered by the handler of its name. Returns answer and rounds."""

    def converse(question, handlers, schemas=None, max_turns=20):
        tools = [tool(name, input_schema=(schemas or {}).get(name, {"type": "object"})) for name in handlers]
        messages = [UserMessage(content=question)]
        rounds = []
        for _ in range(max_turns):
            said = plan(messages, tools)
            if not said.tool_calls:
                return said.content, rounds
            rounds.append(said)
            messages.append(said)
            messages += [
                ToolMessage(
                    tool_call_id=call.id,
                    name=call.name,
                    content=handlers[call.name](**json.loads(call.arguments)),
                )
                for call in said.tool_calls
            ]
        raise AssertionError("the conversation has no end")

    return converse


def calls_of(message):
    return [(call.name, call.arguments) for call in message.tool_calls]


# --- the program language -------------------------------------------------------------------------------------------


def test_named_calls_are_asked_for_in_one_reply_with_their_exact_arguments(converse):
    big = '{"a":  9007199254740993}'
    answer, rounds = converse(f"Please call add {big} and call add {{}}", {"add": lambda a=0: f"got {a}"})
    assert [calls_of(each) for each in rounds] == [[("add", big), ("add", "{}")]]
    assert answer.splitlines()[1:] == ["add: got 9007199254740993", "add: got 0"]


def test_then_begins_another_turn(converse):
    handlers = {name: lambda: "done" for name in "abc"}
    _, rounds = converse("call a {} and call b {} then call c {}", handlers)
    assert [[name for name, _ in calls_of(each)] for each in rounds] == [["a", "b"], ["c"]]


def test_arguments_in_backticks_are_sent_as_they_are():
    asked = plan([UserMessage(content='call add `{"a": 1,` and call add {"a": 2}')], [])
    assert calls_of(asked) == [("add", '{"a": 1,'), ("add", '{"a": 2}')]


def test_text_may_stand_beside_the_calls():
    asked = plan([UserMessage(content='say "Let me see." call add {}')], [])
    assert asked.content == "Let me see."
    assert calls_of(asked) == [("add", "{}")]


def test_words_that_only_look_like_a_program_are_prose():
    said = plan([UserMessage(content="Call me, then call {my} mother")], [])
    assert said.tool_calls == ()
    assert "rehearsal model" in said.content


def slow_tool(waits):
    """A tool that is submitted, and a task_result that says "running" so many times."""
    left = [waits]

    def task_result(task_id, block, timeout_ms):
        left[0] -= 1
        done = {"status": "succeeded", "task_id": task_id, "result": {"identifiers": 7, "most_common": [["self", 3]]}}
        return json.dumps(done if left[0] < 0 else {"status": "running", "task_id": task_id})

    return lambda **_: json.dumps({"status": "submitted", "task_id": "t-1"}), task_result


def test_fetch_waits_for_open_tickets_until_none_is_open(converse):
    slow, task_result = slow_tool(waits=2)
    handlers = {"slow": slow, "quick": lambda: "done", "task_result": task_result, "last": lambda: "over"}
    answer, rounds = converse("call slow {} and call quick {} then fetch then call last {}", handlers)
    assert [[name for name, _ in calls_of(each)] for each in rounds] == [
        ["slow", "quick"],
        ["task_result"],
        ["task_result"],
        ["task_result"],
        ["last"],
    ]
    fetch = json.loads(rounds[1].tool_calls[0].arguments)
    assert fetch == {"task_id": "t-1", "block": True, "timeout_ms": 30000}
    assert "last: over" in answer


def test_cancel_cancels_open_tickets(converse):
    slow, _ = slow_tool(waits=0)
    handlers = {"slow": slow, "task_cancel": lambda task_id: json.dumps({"status": "cancelled", "task_id": task_id})}
    _, rounds = converse("call slow {} then cancel", handlers)
    assert calls_of(rounds[-1]) == [("task_cancel", '{"task_id": "t-1"}')]


def test_without_fetch_a_ticket_is_left_alone(converse):
    slow, task_result = slow_tool(waits=0)
    answer, rounds = converse("call slow {}", {"slow": slow, "task_result": task_result})
    assert len(rounds) == 1
    assert '"task_id": "t-1"' in answer


def test_what_arrives_after_the_program_is_quoted():
    messages = [
        UserMessage(content="call a {}"),
        AssistantMessage(tool_calls=(RequestedCall(id="c", name="a", arguments="{}"),)),
        ToolMessage(tool_call_id="c", name="a", content="42"),
        UserMessage(content="and a late result"),
    ]
    assert plan(messages, []).content.splitlines()[1:] == ["a: 42", "then I was told: and a late result"]


# --- the scripts ----------------------------------------------------------------------------------------------------


def test_a_square_root_is_computed_by_the_tool(converse):
    answer, rounds = converse(
        "What is the square root of 475695037565?", {"square_root": lambda x: str(math.sqrt(x))}, NUMBER_TOOLS
    )
    assert calls_of(rounds[0]) == [("square_root", '{"x": 475695037565}')]
    assert str(math.sqrt(475695037565)) in answer


def test_the_square_root_of_a_sum_takes_two_tools(converse):
    handlers = {"sum": lambda numbers: str(sum(numbers)), "square_root": lambda x: str(math.sqrt(x))}
    answer, rounds = converse("What is the square root of the sum of 16 and 9?", handlers, NUMBER_TOOLS)
    assert [calls_of(each) for each in rounds] == [
        [("sum", '{"numbers": [16, 9]}')],
        [("square_root", '{"x": 25}')],
    ]
    assert "5.0" in answer


def test_a_failed_square_root_is_said_to_have_failed(converse):
    answer, _ = converse(
        "What is the square root of -1?", {"square_root": lambda x: "tool failed: ValueError"}, NUMBER_TOOLS
    )
    assert "could not be computed: tool failed: ValueError" in answer


def library_handlers(*, modules=160, waits=1, broken=()):
    names = [f"module{number:03}" for number in range(modules)]
    index, task_result = slow_tool(waits)

    def analyse(module):
        if module in broken:
            return "tool failed: SyntaxError"
        number = int(module.removeprefix("module"))
        return json.dumps(
            {
                "module": module,
                "functions": number,
                "longest_function": f"run_{number}",
                "longest_function_lines": 1000 - number,
                "with_docstring": number // 2,
            }
        )

    return {
        "list_modules": lambda: json.dumps(names),
        "analyse_module": analyse,
        "index_identifiers": index,
        "task_result": task_result,
    }


def test_the_demonstration_asks_for_every_module_at_once_and_answers_from_the_results(converse):
    answer, rounds = converse(DEMO_QUESTION, library_handlers())
    assert [len(each.tool_calls) for each in rounds] == [1, 161, 1, 1]
    assert [call.name for call in rounds[1].tool_calls].count("index_identifiers") == 1
    assert "module159 (159), module158 (158), module157 (157), module156 (156), module155 (155)." in answer
    assert "run_0 in module000, with 1,000 lines" in answer
    share = 100 * sum(number // 2 for number in range(160)) / sum(range(160))
    assert f"{share:.1f} %" in answer
    assert "7 distinct identifiers" in answer
    assert "rehearsal" in answer


def test_modules_that_could_not_be_analysed_are_not_counted_and_said_so(converse):
    answer, rounds = converse(DEMO_QUESTION, library_handlers(modules=8, broken={"module007"}))
    assert [len(each.tool_calls) for each in rounds] == [1, 9, 1, 1]
    assert "Of the 7 modules analysed" in answer
    assert "1 of the modules could not be analysed" in answer


def test_a_reply_that_was_cut_short_is_made_up_for_in_the_next_turn(tool):
    tools = [tool(name) for name in ("list_modules", "analyse_module")]
    messages = [
        UserMessage(content=DEMO_QUESTION),
        AssistantMessage(tool_calls=(RequestedCall(id="l", name="list_modules", arguments="{}"),)),
        ToolMessage(tool_call_id="l", name="list_modules", content='{"modules": ["ast", "cmd"]}'),
        AssistantMessage(tool_calls=(RequestedCall(id="a", name="analyse_module", arguments='{"module": "ast"}'),)),
        ToolMessage(tool_call_id="a", name="analyse_module", content='{"module": "ast", "functions": 1}'),
    ]
    assert calls_of(plan(messages, tools)) == [("analyse_module", '{"module": "cmd"}')]


def test_an_unknown_question_is_answered_with_the_tools_in_sight(tool):
    said = plan([UserMessage(content="How are you?")], [tool("add"), tool("subtract")])
    assert "rehearsal model" in said.content
    assert "add, subtract" in said.content


# --- the server -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def served(quick):
    async with RehearsalServer() as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal", http=quick)
        yield server, model
        await model.aclose()


async def test_the_demonstration_runs_over_http(served, tool):
    _, model = served
    handlers = library_handlers()
    tools = [tool(name) for name in handlers]
    messages = [UserMessage(content=DEMO_QUESTION)]
    while (message := (await reply(model, messages, tools)).message).tool_calls:
        messages.append(message)
        messages += [
            ToolMessage(tool_call_id=each.id, name=each.name, content=handlers[each.name](**json.loads(each.arguments)))
            for each in message.tool_calls
        ]
    assert "module159 (159)" in message.content


async def test_calls_without_results_are_refused_as_openai_does(served):
    _, model = served
    dangling = AssistantMessage(tool_calls=(RequestedCall(id="c", name="a", arguments="{}"),))
    with pytest.raises(ModelRefused, match="did not have response messages: c"):
        await reply(model, [UserMessage(content="Hello?"), dangling, UserMessage(content="Hello?")])


async def test_a_result_without_a_call_is_refused_as_openai_does(served):
    _, model = served
    with pytest.raises(ModelRefused, match="must follow a message"):
        await reply(model, [ToolMessage(tool_call_id="c", name="a", content="42")])


async def test_the_same_request_gets_the_same_reply(served):
    _, model = served
    messages = [UserMessage(content="call a {}")]
    assert await reply(model, messages) == await reply(model, messages)


async def test_an_illegal_tool_name_is_refused_as_openai_does(served):
    server, _ = served
    body = {
        "model": REHEARSAL_MODEL,
        "messages": [{"role": "user", "content": "Hello?"}],
        "tools": [{"type": "function", "function": {"name": "größe"}}],
    }
    headers = {"authorization": "Bearer rehearsal"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.base_url}/chat/completions", json=body, headers=headers) as answer,
    ):
        assert answer.status == 400
        assert "tools[0].function.name" in (await answer.json())["error"]["message"]


async def test_the_server_lists_the_rehearsal_as_its_model(served):
    server, _ = served
    async with aiohttp.ClientSession() as session, session.get(f"{server.base_url}/models") as answer:
        assert [model["id"] for model in (await answer.json())["data"]] == ["toolfleet-rehearsal"]


async def test_a_port_in_use_is_said_to_be():
    async with RehearsalServer() as server:
        port = int(server.base_url.split(":")[2].split("/")[0])
        with pytest.raises(PortInUse, match=str(port)):
            async with RehearsalServer(port=port):
                raise AssertionError("two servers listen on one port")
