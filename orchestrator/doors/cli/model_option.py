"""`--model`, the same for every command that asks one; apart from what asks it, which takes a while to load."""

from __future__ import annotations

from typing import Annotated

import typer

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The model: gpt-5.2, claude-…, openai:NAME, anthropic:NAME or rehearsal; otherwise "
        "TOOLFLEET_MODEL, or that of the provider whose key is set.",
    ),
]
