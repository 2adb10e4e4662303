"""The examples of docs/tools.md, run as they stand there: its `my_tools.py` on real workers, the others as scripts."""

import ast
import inspect
import re
import sys
from pathlib import Path

import pytest

from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.models import REHEARSAL_MODEL, RehearsalServer

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
MODULE = "# my_tools.py\n"


def examples():
    """Each example: the line where it begins, the heading above it, its text."""
    text = PAGE.read_text()
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        before = text[: found.start(1)]
        heading = re.findall(r"^##+ (.+)$", before, re.MULTILINE)[-1]
        yield before.count("\n"), heading, found[1]


SCRIPTS = [pytest.param(line, text, id=f"{line + 1}-{name}") for line, name, text in examples() if MODULE not in text]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    tools = "".join(text for _, _, text in examples() if text.startswith(MODULE))
    (folder / "my_tools.py").write_text(tools)
    sys.path.insert(0, str(folder))
    with LocalFleet(["my_tools"], pools={"io": 1}, environment={"PYTHONPATH": str(folder)}) as running:
        yield running
    sys.path.remove(str(folder))
    module = sys.modules.pop("my_tools", None)
    if module is not None:
        module.database.close()


@pytest.fixture
async def surroundings(fleet, monkeypatch):
    """What `toolfleet up` prints and a key would put into the environment."""
    async with RehearsalServer() as server:
        variables = {
            **fleet.settings.as_environment(),
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "rehearsal",
            "OPENAI_MODEL": REHEARSAL_MODEL,
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.mark.parametrize(("line", "text"), SCRIPTS)
@pytest.mark.usefixtures("surroundings")
async def test_an_example_does_what_it_says(line, text):
    code = compile("\n" * line + text, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    ended = eval(code, {"__name__": "an_example"})
    if inspect.isawaitable(ended):
        await ended


def test_the_page_has_examples():
    assert len(SCRIPTS) > 15
