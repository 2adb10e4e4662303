"""An orchestrator is open or it is not, and says which."""

import inspect

import pytest

from toolfleet import Approval, AssistantMessage, NotOpen, Orchestrator, UserMessage
from toolfleet.calls import Returned
from toolfleet.settings import Settings

ASKED = {
    "run": lambda o: o.run("hello"),
    "start": lambda o: o.start("hello"),
    "submit": lambda o: o.submit("hello", model="m"),
    "wait": lambda o: o.wait("r"),
    "get": lambda o: o.get("r"),
    "runs": lambda o: o.runs(),
    "run_page": lambda o: o.run_page(),
    "tenant_of": lambda o: o.tenant_of("r"),
    "cancel": lambda o: o.cancel("r"),
    "resume": lambda o: o.resume("r"),
    "fork": lambda o: o.fork("r", at=1),
    "export": lambda o: o.export("r"),
    "say": lambda o: o.say("r", "hello"),
    "questions": lambda o: o.questions(),
    "question": lambda o: o.question("q"),
    "answer": lambda o: o.answer("q", 1),
    "decline": lambda o: o.decline("q"),
    "approve": lambda o: o.approve("r.1.0", Approval(granted=True)),
    "delete": lambda o: o.delete("r"),
    "calls": lambda o: o.calls("r"),
    "cancel_call": lambda o: o.cancel_call("r.1.0"),
    "retry_call": lambda o: o.retry_call("r.1.0"),
    "call": lambda o: o.call("add", {}),
    "task": lambda o: o.task("h"),
    "cancel_task": lambda o: o.cancel_task("h"),
    "execute": lambda o: o.execute(AssistantMessage()),
    "execute_results": lambda o: o.execute_results(AssistantMessage()),
    "artifact": lambda o: o.artifact("a"),
    "with_media": lambda o: o.with_media(Returned(content="1")),
    "complete": lambda o: o.complete([UserMessage(content="hello")]),
}


@pytest.mark.parametrize("name", ASKED)
async def test_whatever_needs_an_open_orchestrator_says_how_to_open_it(name):
    with pytest.raises(NotOpen, match=r"async with Orchestrator\(…\)"):
        await ASKED[name](Orchestrator(settings=Settings()))


def test_each_method_that_is_awaited_is_asked_above():
    awaited = {
        name
        for name, method in vars(Orchestrator).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(inspect.unwrap(method))
    }
    assert awaited == ASKED.keys()


@pytest.mark.parametrize("name", ["catalog", "conversations", "dispatched", "adopted", "working"])
def test_what_only_an_open_orchestrator_has_is_not_there_before(name):
    with pytest.raises(NotOpen):
        getattr(Orchestrator(settings=Settings()), name)


def test_a_stream_of_an_orchestrator_that_is_not_open_says_so_at_once():
    with pytest.raises(NotOpen):
        Orchestrator(settings=Settings()).stream("hello")


async def test_an_orchestrator_that_was_left_is_as_one_that_was_never_entered(fleet):
    orchestrator = Orchestrator(settings=fleet.settings)
    for _ in range(2):  # and it may be entered again
        async with orchestrator:
            assert orchestrator.is_open
            assert await orchestrator.runs() is not None
        assert not orchestrator.is_open
        with pytest.raises(NotOpen):
            await orchestrator.runs()
