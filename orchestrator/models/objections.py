"""What a model's provider would not take, known before it is asked. Pure.

Nothing that a caller asks for is left out in silence: what cannot be passed on is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolfleet.messages import Message
from toolfleet.orchestrator.errors import NotForThisModel
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.models.sight import images_said, problem_with_image

Objection = Callable[[Sequence[Message], Mapping[str, Any]], str | None]
"""What models have as `objection` that know beforehand what their providers do not take: why one must not be asked
this, in words for whoever asks; None if nothing is known against it."""


def objection_of(model: ChatModel, messages: Sequence[Message], options: Mapping[str, Any]) -> str | None:
    """Return why a model must not be asked this; None if nothing is known against it, or of the model."""
    objection: Objection | None = getattr(model, "objection", None)  # no part of the protocol
    return None if objection is None else objection(messages, options)


def must_take(model: ChatModel, messages: Sequence[Message], options: Mapping[str, Any]) -> None:
    """Raise NotForThisModel for what a model would refuse."""
    if (why := objection_of(model, messages, options)) is not None:
        raise NotForThisModel(why)


def objection_to_images(name: str, messages: Sequence[Message], *, sees: bool) -> str | None:
    """Return why a model must not be shown the images of a conversation."""
    images = images_said(messages)
    if images and not sees:
        return (
            f"the model {name} is not known to see, so it takes no images: leave them out, or ask one that does "
            "(TOOLFLEET_MODEL_SEES=1, or sees=True, says that it does)"
        )
    return next((why for image in images if (why := problem_with_image(image)) is not None), None)
