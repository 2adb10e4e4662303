"""Pages and examples use the public names only: those of `toolfleet`, and of a few modules beside it."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.pages import Page
from toolfleet import Orchestrator, wire
from toolfleet.tracing import conventions

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/**/*.py"))

PUBLIC = {
    "toolfleet",
    "toolfleet.interceptors",
    "toolfleet.testing",
    "toolfleet.orchestrator.doors.mcp",  # an ASGI app that needs an extra, as the adapters do
}
PUBLIC_FOLDERS = ("toolfleet.orchestrator.adapters.", "toolfleet.workers.packs.")
NAMED_FOR_CELERY = {"toolfleet.workers.app"}
NAMED_FOR_SPANS = {name for name in vars(conventions).values() if str(name).startswith("toolfleet.")}
SEALS = (purpose for purpose in vars(wire).values() if isinstance(purpose, bytes))
NAMED_FOR_SEALS = {purpose.rstrip(b"\0").decode() for purpose in SEALS} | {"toolfleet.shard"}
NAMED_FOR_PROCESSES = {"toolfleet.testing.instruments"}
NAMED = NAMED_FOR_CELERY | NAMED_FOR_SPANS | NAMED_FOR_SEALS | NAMED_FOR_PROCESSES


def sources():
    for path in PAGES:
        for block in Page(str(path)).blocks:
            if block.language == "python":
                yield f"{path.relative_to(ROOT)}:{block.line}", block.text
    for path in EXAMPLES:
        yield str(path.relative_to(ROOT)), path.read_text()


def imports(text):
    """Each module of ours that is imported, and the names that are taken from it."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module, [each.name for each in names]
            case ast.Import(names=names):
                yield from ((each.name, []) for each in names)


def of_ours(text):
    return [
        (module, names) for module, names in imports(text) if re.match(r"(toolfleet|orchestrator|workers)\b", module)
    ]


def is_public(module):
    return module in PUBLIC or module.startswith(PUBLIC_FOLDERS)


def test_pages_and_examples_import_public_modules_only():
    used = [(where, module) for where, text in sources() for module, _ in of_ours(text)]
    assert len(used) > 60
    assert [(where, module) for where, module in used if not is_public(module)] == []


def test_every_name_that_is_imported_is_a_public_name_of_its_module():
    wrong = [
        (where, module, name)
        for where, text in sources()
        for module, names in of_ours(text)
        for name in names
        if name not in (getattr(import_module(module), "__all__", None) or dir(import_module(module)))
    ]
    assert wrong == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_modules_that_are_named_in_passing_are_public_too(path):
    for name in re.findall(r"(?<![\w/.@-])toolfleet(?:\.[a-z_]\w*)+", path.read_text()):
        public_names = {f"{module}.{each}" for module in PUBLIC for each in import_module(module).__all__}
        assert is_public(name) or name in public_names | NAMED, name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_is_said_of_an_orchestrator_is_one_of_its_members(path):
    for name in re.findall(r"(?<![\w./])(?:orchestrator|Orchestrator)\.([a-z]\w*)", path.read_text()):
        assert hasattr(Orchestrator, name) or name in {"catalog", "settings", "address"}, f"orchestrator.{name}"
