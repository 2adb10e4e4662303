"""`toolfleet run --image`: a picture goes along with the question, to a model that sees."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from tests.cli.command import Terminal
from tests.fleet.strict_provider import StrictProvider, ended

PNG = b"\x89PNG\r\n\x1a\n"
ARITHMETIC = ("--tools", "toolfleet.workers.packs.arithmetic")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    (tmp_path / "picture.png").write_bytes(PNG)
    return tmp_path / "picture.png"


async def test_a_picture_is_shown_to_the_model_and_a_refusal_of_it_is_printed_as_one(
    tmp_path: Path, picture: Path
) -> None:
    async with StrictProvider() as provider:
        provider.replies.append(ended("stop", refusal="Not that."))
        seeing = {
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "OPENAI_API_KEY": "k",
            "OPENAI_MODEL": "strict",
            "TOOLFLEET_MODEL_SEES": "1",
        }
        terminal = Terminal(tmp_path, seeing)
        said = await asyncio.to_thread(terminal.run, "run", "What is this?", "--image", str(picture), *ARITHMETIC)
    assert said.code == 0, said
    assert "Not that." in said.out
    assert "The model of this answer refused to give it." in said.out + said.err
    [shown, text] = provider.requests[0]["messages"][0]["content"]
    assert shown["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert text["text"] == "What is this?"


def test_what_is_no_picture_or_not_for_this_model_is_refused(terminal: Terminal, picture: Path) -> None:
    refused = terminal.run("run", "?", "--image", str(picture), *ARITHMETIC)
    assert "toolfleet-rehearsal is not known to see" in refused.complaint()
    for name, wrong in (("picture.txt", "is named like none of"), ("gone.png", "cannot be read")):
        refused = terminal.run("run", "?", "--image", str(picture.parent / name), *ARITHMETIC)
        assert (refused.code, wrong in refused.err) == (2, True), refused
