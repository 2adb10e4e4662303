"""Several models as one: the next is asked when one fails.

Knows only `ChatModel`; each model keeps its own retries.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from toolfleet.logs import FactLog
from toolfleet.messages import Message
from toolfleet.misspelt import exact
from toolfleet.orchestrator.errors import ModelError, ModelRefused, ModelUnreachable
from toolfleet.orchestrator.models.objections import objection_of
from toolfleet.orchestrator.models.protocol import (
    CallComplete,
    ChatModel,
    ModelEvent,
    OfferedTool,
    Restarted,
    provider_tools_of,
)

log = FactLog(__name__)


@exact()
class FallbackModel:
    """Asks the first model; when it fails after its retries, the next one, and so on, anew for each reply.

    `ReplyComplete.model` says who answered. A model that has handed out a call is not replaced. When all fail,
    raises ModelRefused if all refused, else ModelUnreachable, with every model's reason.
    """

    def __init__(self, models: Sequence[ChatModel]) -> None:
        if not models:
            raise ValueError("FallbackModel needs at least one model")
        self._models = tuple(models)

    def __repr__(self) -> str:
        return f"FallbackModel({list(self._models)!r})"

    @property
    def name(self) -> str:
        """All names in the order of asking."""
        return " | ".join(model.name for model in self._models)

    @property
    def provider_tools(self) -> tuple[str, ...]:
        """The names of the tools that the providers of any of them run themselves."""
        return tuple(dict.fromkeys(name for model in self._models for name in provider_tools_of(model)))

    def objection(self, messages: Sequence[Message], options: Mapping[str, Any]) -> str | None:
        """Return why none of them must be asked this; None if one of them may take it."""
        objections = [objection_of(model, messages, options) for model in self._models]
        return None if None in objections else "; ".join(dict.fromkeys(filter(None, objections)))

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[OfferedTool],
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask for one reply; see `ChatModel.stream`."""
        errors: list[ModelError] = []
        shown = handed_out = False
        for attempt, model in enumerate(self._models, start=1):
            if shown:
                yield Restarted(attempt)
                shown = False
            try:
                async with aclosing(model.stream(messages, tools, extra_body=extra_body)) as events:
                    async for event in events:
                        shown = True
                        handed_out = handed_out or isinstance(event, CallComplete)
                        yield event
            except ModelError as error:
                if handed_out:
                    raise
                log.warning("model.fallback", failed=model.name, error=str(error))
                errors.append(error)
            else:
                return
        raise self._all_failed(errors)

    async def aclose(self) -> None:
        """Close every model."""
        for model in self._models:
            await model.aclose()

    def _all_failed(self, errors: Sequence[ModelError]) -> ModelError:
        if len(errors) == 1:
            return errors[0]
        reasons = "; ".join(f"{model.name}: {error}" for model, error in zip(self._models, errors, strict=True))
        refused = all(isinstance(error, ModelRefused) for error in errors)
        # Of those that may yet answer, where not all have refused.
        said = next(error.said for error in errors if refused or not isinstance(error, ModelRefused))
        return (ModelRefused if refused else ModelUnreachable)(f"no model answered: {reasons}", said)
