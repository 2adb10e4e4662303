"""docs/cli.md has every command with the line that `--help` says, and names no option that there is not."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from toolfleet.orchestrator.doors.cli.lazy_group import load
from toolfleet.orchestrator.doors.cli.main import COMMANDS, app
from toolfleet.workers.command import app as workers_own

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SECTIONS = dict(re.findall(r"^### `toolfleet (\w+)`\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))


def command_of(name):
    return typer.main.get_command(workers_own) if name == "worker" else load(name, COMMANDS[name])


def options_of(command):
    below = [options_of(each) for each in getattr(command, "commands", {}).values()]
    own = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*below)


def test_every_command_has_its_section_and_none_is_made_up():
    assert SECTIONS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_said_in_the_words_of_its_help(name):
    assert SECTIONS[name].strip().splitlines()[0] == COMMANDS[name].help


@pytest.mark.parametrize("name", [name for name in COMMANDS if hasattr(load(name, COMMANDS[name]), "commands")])
def test_every_command_of_a_group_is_in_its_table(name):
    rows = dict(re.findall(rf"^\| `{name} (\w+)` \| (.+) \|$", SECTIONS[name], re.MULTILINE))
    assert rows == {sub: command.help.splitlines()[0] for sub, command in command_of(name).commands.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_are_named_exist(name):
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", SECTIONS[name].replace(COMMANDS[name].help, "")))
    assert named - options_of(command_of(name)) == set()


def test_every_example_names_a_command_and_options_of_it():
    examples = [each.replace("\n", " ") for each in re.findall(r"`(toolfleet [^`]+)`", PAGE)]
    examples += re.findall(r"^\$ (toolfleet .+)$", PAGE, re.MULTILINE)
    assert len(examples) > 2 * len(COMMANDS)
    known = {option for parameter in typer.main.get_command(app).params for option in parameter.opts} | {"--help", "-h"}
    for example in examples:
        _, name, *words = shlex.split(example)
        options = {word for word in words if word.startswith("--")}
        assert name in known if name.startswith("-") else options <= options_of(command_of(name)), example
