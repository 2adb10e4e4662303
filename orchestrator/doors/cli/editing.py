"""A conversation in the user's own editor, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click
import orjson
from pydantic import TypeAdapter, ValidationError

from toolfleet.errors import CallerError
from toolfleet.messages import Message

MESSAGES: Final[TypeAdapter[Sequence[Message]]] = TypeAdapter(Sequence[Message])


class NotEdited(CallerError):
    """What the editor has left is no conversation."""


def edited(messages: Sequence[Message]) -> Sequence[Message]:
    """Let the user edit messages. Raises NotEdited where nothing was saved, or what was saved are no messages."""
    shown = orjson.dumps(MESSAGES.dump_python(messages, mode="json"), option=orjson.OPT_INDENT_2).decode()
    try:
        saved = click.edit(shown, extension=".json")
    except click.ClickException as error:
        raise NotEdited(f"{error.message}: set VISUAL or EDITOR to an editor that waits until you save") from error
    if saved is None:
        raise NotEdited("nothing was saved in the editor, so no run was begun")
    try:
        return MESSAGES.validate_json(saved)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_context=False)
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise NotEdited(f"what was saved is no conversation, so no run was begun: {where}: {first['msg']}") from error
