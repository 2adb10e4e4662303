"""What `@tool` makes of a function: a spec, and still that function."""

import asyncio
import inspect

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict

from toolfleet import Context, Effect, Tool, ToolSpec, hand_written, tool
from toolfleet.errors import InvalidTool


@tool
async def fetch(url: str, retries: int = 2) -> str:
    """Fetch a page."""
    return f"{url} {retries}"


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def test_a_tool_is_called_as_the_function_it_is():
    assert add(2, b=3) == 5
    assert asyncio.run(fetch("x")) == "x 2"
    assert (add.__name__, add.__doc__, inspect.signature(add)) == (
        "add",
        "Add two numbers.",
        inspect.signature(add.__wrapped__),
    )


def test_S7_the_name_is_the_functions_unless_given():
    @tool(name="summe")
    def f(): ...

    assert (add.spec.name, f.spec.name) == ("add", "summe")


@pytest.mark.parametrize("name", ["wetter_für_köln", "获取天气", "погода", "get weather.v2", "x" * 200])
def test_S7_a_name_that_providers_would_refuse_is_kept(name):
    @tool(name=name)
    def f(): ...

    assert f.spec.name == name
    assert ToolSpec.model_validate_json(f.spec.model_dump_json()) == f.spec


@pytest.mark.parametrize("name", ["   ", "a\nb", "a\x00b", "x" * 257])
def test_S7_what_is_no_name_is_refused(name):
    with pytest.raises(InvalidTool, match="no name for a tool"):

        @tool(name=name)
        def f(): ...


def test_the_effect_is_once_unless_the_author_promises_more():
    @tool(read_only=True)
    def looks(): ...

    @tool(idempotent=True)
    def sets(): ...

    assert (add.spec.effect, looks.spec.effect, sets.spec.effect) == (Effect.ONCE, Effect.READ_ONLY, Effect.IDEMPOTENT)


def test_the_queue_suits_the_function():
    @tool(long_running=True)
    async def slow(): ...

    @tool(long_running=True, queue="gpu")
    async def own(): ...

    assert [each.spec.queue for each in (fetch, add, slow, own)] == ["io", "cpu", "long", "gpu"]


def test_where_a_plain_function_runs_is_said_without_a_queue():
    @tool(blocking="thread")
    def read(): ...

    @tool(blocking="thread", long_running=True)
    def watch(): ...

    @tool(blocking="process")
    def add(): ...

    @tool(blocking="process", long_running=True)
    def render(): ...

    assert [each.spec.queue for each in (read, watch, add, render)] == ["io", "io", "cpu", "long"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"blocking": "process", "queue": "io"}, "leave queue out"),
        ({"blocking": "thread", "queue": "cpu"}, "leave one out"),
        ({"blocking": "thread", "queue": "long"}, "leave one out"),
    ],
    ids=str,
)
def test_a_place_that_contradicts_its_queue_is_refused(options, said):
    with pytest.raises(InvalidTool, match=said):

        @tool(**options)
        def f(): ...


def test_an_async_tool_does_not_block():
    with pytest.raises(InvalidTool, match="this one is async: leave it out"):

        @tool(blocking="process")
        async def f(): ...


def test_an_effect_that_may_come_after_its_time_is_told_with_the_remedy_once(caplog):
    @tool(queue="io", timeout_s=5)
    def pay(): ...

    assert pay.spec.queue == "io"
    [told] = [record.getMessage() for record in caplog.records]
    assert "tool_cannot_be_stopped" in told
    assert "pay" in told
    assert 'blocking=\\"process\\"' in told or 'blocking="process"' in told


@pytest.mark.parametrize(
    "options",
    [{"read_only": True}, {"idempotent": True}, {"timeout_s": None}, {"queue": "cpu"}, {"queue": "own"}],
    ids=str,
)
def test_nothing_is_told_of_what_can_be_stopped_or_repeated(caplog, options):
    @tool(**({"queue": "io", "timeout_s": 5} | options))
    def pay(): ...

    assert not caplog.records


def test_options_reach_the_spec_and_the_tool():
    @tool(
        timeout_s=5,
        patience_s=0,
        requires_approval=True,
        return_direct=True,
        tags=("a",),
        retries=3,
        retry_on=OSError,
        blocking="process",
    )
    def f(): ...

    spec = f.spec
    assert (spec.timeout_s, spec.patience_s, spec.requires_approval, spec.return_direct, spec.tags) == (
        5,
        0,
        True,
        True,
        ("a",),
    )
    assert (f.retries, f.retry_on, f.blocking, f.is_async) == (3, (OSError,), "process", False)


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"timeout_s": -1}, {"patience_s": -1}, {"retries": -1}], ids=str)
def test_an_option_that_means_nothing_is_refused(options):
    with pytest.raises(InvalidTool, match=f"tool f: .*{next(iter(options))}"):

        @tool(**options)
        def f(): ...


def test_a_misspelt_option_is_refused():
    with pytest.raises(TypeError, match="readonly"):
        tool(readonly=True)


def test_the_source_tells_where_a_tool_was_written():
    assert add.source.startswith(f"{__name__}:add (")
    assert add.source.endswith(f"test_declaration.py:{add.__wrapped__.__code__.co_firstlineno})")


@pytest.mark.parametrize("thing", [len, int, 5], ids=["builtin", "class", "number"])
def test_what_cannot_be_a_tool_is_refused(thing):
    with pytest.raises(InvalidTool):
        tool(thing)


def test_whether_a_tool_returns_nothing_is_known():
    @tool
    def silent() -> None: ...

    @tool
    def unannotated(): ...

    assert (silent.returns_nothing, unannotated.returns_nothing, add.returns_nothing) == (True, False, False)


def test_positional_only_parameters_are_filled_by_name():
    @tool
    def f(a: int, b: int, /, c: int) -> list[int]:
        return [a, b, c]

    context = Context(call_id="r.1.0", run_id="r", tool="f", deadline_unix_s=0)
    assert f.invoke(f.bind('{"c": 3, "b": 2, "a": 1}'), context) == [1, 2, 3]


def test_a_type_defined_inside_a_function_is_found_when_annotations_are_text():
    scope: dict = {}
    exec(
        "from __future__ import annotations\n"
        "from pydantic import BaseModel\n"
        "from toolfleet import tool\n"
        "def make():\n"
        "    class Inner(BaseModel):\n"
        "        x: int\n"
        "    @tool\n"
        "    def f(inner: Inner): ...\n"
        "    return f\n",
        scope,
    )
    assert scope["make"]().bind('{"inner": {"x": 1}}').values["inner"].x == 1


@given(st.from_regex(r"[a-z]{1,9}(_[a-z]{1,9}){0,9}", fullmatch=True))
def test_a_spec_survives_the_wire(name):
    @tool(name=name, tags=("x", "y"), timeout_s=1.5)
    def f(a: int, b: list[str] | None = None) -> list[int]: ...

    assert isinstance(f, Tool)
    assert ToolSpec.model_validate_json(f.spec.model_dump_json()) == f.spec


def test_a_strict_tool_says_so_and_one_that_no_provider_takes_is_refused():
    class Place(BaseModel):
        model_config = ConfigDict(extra="forbid")
        street: str
        number: int | None

    @tool(strict=True)
    def visit(place: Place, at: list[Place]) -> None:
        """Visit."""

    assert (visit.spec.strict, tool(lambda: None).spec.strict) == (True, None)

    def counted(words: str, limit: int = 3) -> None: ...

    def loose(words: dict[str, int]) -> None: ...

    class Open(BaseModel):
        name: str = ""

    def within(place: Open) -> None: ...

    for function, why in (
        (counted, "limit may be left out"),
        (loose, "what may be in words is not all named"),
        (within, "name in Open may be left out"),
    ):
        with pytest.raises(InvalidTool, match=why):
            assert tool(strict=True)(function).spec
    assert tool(strict=False)(counted).spec.strict is False
    spec = {"name": "odd", "description": "Odd.", "input_schema": {"type": "object"}, "strict": True}
    with pytest.raises(InvalidTool, match="what may be passed is not all named"):
        hand_written(spec, lambda arguments: arguments)
