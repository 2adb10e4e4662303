"""What whoever looks on at a run is told of a reply while it comes: no word that its interceptors take out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolfleet.masks import has_secrets
from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.models.protocol import CallDelta, ModelEvent, TextDelta, ThoughtDelta
from toolfleet.orchestrator.run.updates import CallArgumentsArrived, ReplyBegan, TextArrived, ThoughtArrived
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.tools.chain import Chain
from toolfleet.orchestrator.tools.request import TextFilter
from toolfleet.strict_json import encodable
from toolfleet.tool import ToolSpec


class Telling:
    """Tells of one reply; `begin` is called each time that it begins anew, `end` with what is stored of it."""

    def __init__(self, work: RunAtWork, chain: Chain, offered: Mapping[str, ToolSpec]) -> None:
        self._emit = work.emit
        self._run = work.run
        self._offered = offered
        self._around = chain.around_model
        self._is_held = any(each.hides_replies for each in chain.around_model)
        self._text: Sequence[TextFilter] = ()
        self._thoughts: Sequence[TextFilter] = ()

    def begin(self, attempt: int) -> None:
        """Say that the reply begins; what was said of it before is void."""
        if self._emit:
            self._emit(ReplyBegan(run_id=self._run.run_id, turn=self._run.turn + 1, attempt=attempt))
            self._text, self._thoughts = self._filters(), self._filters()

    def tell(self, event: ModelEvent) -> None:
        """Tell of a piece of the reply, as far as it may be shown by now."""
        if self._emit is None or self._is_held:
            return
        if isinstance(event, TextDelta):
            self._tell_thought(_rest(self._thoughts))
            self._thoughts = ()
            self._tell_text(_passed(self._text, event.text))
        elif isinstance(event, ThoughtDelta):
            self._tell_thought(_passed(self._thoughts, event.text))
        elif isinstance(event, CallDelta):
            self._emit(_arguments_arrived(self._run, event, self._offered))

    def end(self, message: AssistantMessage) -> None:
        """Tell the rest of it; of one that was held back, all."""
        if self._emit is None or not self._around:
            return
        self._tell_thought(message.thoughts if self._is_held else _rest(self._thoughts))
        self._tell_text(message.content if self._is_held else _rest(self._text))

    def _filters(self) -> Sequence[TextFilter]:
        made = (each.text_filter() for each in reversed(self._around))
        return tuple(each for each in made if each is not None)

    def _tell_text(self, text: str) -> None:
        if text and self._emit:
            self._emit(TextArrived(run_id=self._run.run_id, text=encodable(text)))

    def _tell_thought(self, text: str) -> None:
        if text and self._emit:
            self._emit(ThoughtArrived(run_id=self._run.run_id, text=encodable(text)))


def _passed(filters: Sequence[TextFilter], text: str) -> str:
    for each in filters:
        text = each.feed(text)
    return text


def _rest(filters: Sequence[TextFilter]) -> str:
    rest = ""
    for each in filters:
        rest = each.feed(rest) + each.end()
    return rest


def _arguments_arrived(run: Run, delta: CallDelta, offered: Mapping[str, ToolSpec]) -> CallArgumentsArrived:
    """For whoever looks: half a secret could not be masked, so of tools that have secrets no piece is shown.

    Nor of a name that nobody has: it may be a slip for one of them.
    """
    is_secret = delta.name not in offered or has_secrets(offered[delta.name].input_schema)
    return CallArgumentsArrived(
        run_id=run.run_id,
        index=delta.index,
        requested_id=encodable(delta.id),
        tool=encodable(delta.name),
        arguments_delta="" if is_secret else encodable(delta.arguments_delta),
    )
