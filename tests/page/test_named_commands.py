"""What the page tells people to type can be typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import click
import typer

from toolfleet.orchestrator.doors.cli.main import app

TEMPLATES = Path(str(files("toolfleet.orchestrator.doors.page"))) / "templates"
TOOLFLEET = Path(sys.executable).with_name("toolfleet")
COMMAND = re.compile(r"<code>toolfleet ([^<]+)</code>")


def test_every_command_that_the_page_names_is_one():
    named = {found for each in TEMPLATES.rglob("*.html") for found in COMMAND.findall(each.read_text())}
    assert len(named) > 5
    for text in named:
        words, command, path = shlex.split(text), typer.main.get_command(app), []
        while hasattr(command, "get_command"):
            path.append(words.pop(0))
            command = command.get_command(click.Context(command), path[-1])
        assert command is not None, text
        if options := [word for word in words if word.startswith("--")]:
            told = subprocess.run([TOOLFLEET, *path, "--help"], capture_output=True, text=True, check=True).stdout
            assert [option for option in options if option not in told] == [], text
