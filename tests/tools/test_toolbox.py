"""Rows S8 and S9: tools collected from modules and objects."""

import sys
from pathlib import Path

import pytest

from toolfleet import Context, Tool, tool
from toolfleet.errors import DuplicateTool, NoToolsFound, ToolModuleError
from toolfleet.toolbox import by_name, load_tools, tools_in

CONTEXT = Context(call_id="r.1.0", run_id="r", tool="f", deadline_unix_s=0)


class Counter:
    def __init__(self, start: int) -> None:
        self.total = start

    @property
    def explosive(self) -> int:
        raise AssertionError("collecting tools must not run properties")

    @tool
    def count(self, by: int = 1) -> int:
        """Count on."""
        self.total += by
        return self.total

    @staticmethod
    @tool
    def double(n: int) -> int:
        return 2 * n

    @tool
    @staticmethod
    def triple(n: int) -> int:
        return 3 * n

    @classmethod
    @tool
    async def kind(cls) -> str:
        return cls.__name__

    def no_tool(self) -> None: ...


class Special(Counter): ...


class OnlyMethods:
    @tool
    def f(self): ...


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a module that can be imported, and forgets it afterwards."""
    written: list[str] = []
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(f"from toolfleet import tool\n{text}\n", "utf-8")
        written.append(name)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)


def names(tools: list[Tool]) -> list[str]:
    return sorted(each.spec.name for each in tools)


def test_S9_the_methods_of_an_object_are_bound_to_it():
    tools = by_name(tools_in(Counter(10)))
    assert sorted(tools) == ["count", "double", "kind", "triple"]
    count = tools["count"]
    assert list(count.spec.input_schema["properties"]) == ["by"]
    assert count.invoke(count.bind('{"by": 5}'), CONTEXT) == 15
    assert count.invoke(count.bind("{}"), CONTEXT) == 16


def test_S9_two_objects_keep_their_own_state():
    first, second = Counter(0), Counter(100)
    assert (first.count(1), second.count(1), first.count(1)) == (1, 101, 2)


async def test_S9_the_static_and_class_methods_of_a_class_are_found():
    tools = by_name(tools_in(Special))
    assert sorted(tools) == ["double", "kind", "triple"]
    assert tools["double"].invoke(tools["double"].bind('{"n": 4}'), CONTEXT) == 8
    assert tools["triple"].invoke(tools["triple"].bind('{"n": 4}'), CONTEXT) == 12
    assert await tools["kind"].invoke(tools["kind"].bind(""), CONTEXT) == "Special"
    assert (Counter.double(4), Counter(0).triple(4)) == (8, 12)


def test_S9_a_module_is_scanned(module):
    name = module("scanned", "@tool\ndef a(): ...\n@tool(name='b')\ndef other(): ...\ndef no_tool(): ...")
    assert sorted(load_tools([name])) == ["a", "b"]


def test_S9_an_object_in_a_module_may_be_named(module):
    name = module("holding", "class C:\n    @tool\n    def f(self) -> int:\n        return 7\nc = C()")
    f = load_tools([f"{name}:c"])["f"]
    assert f.invoke(f.bind(""), CONTEXT) == 7


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (object(), "no tools found in an instance of object; mark functions with @tool"),
        (int, "no tools found in class int; mark functions with @tool"),
        (sys, "no tools found in module sys; mark functions with @tool"),
        (OnlyMethods, "no tools found in class OnlyMethods; its tools are methods, give an instance of it"),
    ],
    ids=["instance", "class", "module", "methods"],
)
def test_S9_finding_none_is_an_error(source, message):
    with pytest.raises(NoToolsFound) as error:
        tools_in(source)
    assert str(error.value) == message


def test_S8_two_tools_with_one_name_are_refused_with_both_sources(module):
    first = module("first_tools", "@tool\ndef search(): ...")
    second = module("second_tools", "@tool(name='search')\ndef find(): ...")
    with pytest.raises(DuplicateTool) as error:
        load_tools([first, second])
    assert "two tools are called 'search'" in str(error.value)
    assert "first_tools:search" in str(error.value)
    assert "second_tools:find" in str(error.value)


def test_S8_one_tool_seen_through_two_modules_is_one(module):
    first = module("defining", "@tool\ndef search(): ...")
    second = module("importing", "from defining import search\n@tool\ndef more(): ...")
    assert sorted(load_tools([first, second, first])) == ["more", "search"]


def test_S8_the_method_of_two_objects_is_two_tools():
    with pytest.raises(DuplicateTool, match=r"Counter\.count.*Counter\.count"):
        by_name([Counter(1).count, Counter(1).count])


def test_S8_the_method_of_one_object_is_one_tool():
    counter = Counter(1)
    assert list(by_name([counter.count, counter.count])) == ["count"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import not_installed_anywhere", "ModuleNotFoundError: No module named 'not_installed_anywhere'"),
        ("raise RuntimeError('no\\n  key')", "RuntimeError: no key"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError: "),
    ],
)
def test_a_module_that_fails_while_imported_is_reported_in_one_line(module, text, reason):
    name = module("failing", text)
    with pytest.raises(ToolModuleError) as error:
        load_tools([name])
    assert str(error.value).startswith(f"cannot load tools from 'failing': {reason}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["no.such.module", "toolfleet:nothing", "", "."])
def test_what_is_not_there_is_reported(name):
    with pytest.raises(ToolModuleError, match=f"cannot load tools from {name!r}: "):
        load_tools([name])
