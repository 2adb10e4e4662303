"""What a run's calls and messages come to, kept as they come: no step of a run may look at all that came before it.

A tally follows from the run's messages and calls (`Tally.of`), and says nothing that they do not. Pure.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from toolfleet.calls import FailureKind, Returned, Spent, Submitted
from toolfleet.messages import AssistantMessage, Message, ToolMessage, UserMessage

if TYPE_CHECKING:
    from toolfleet.orchestrator.run.events import CallRecord

K = TypeVar("K", bound=Hashable)

KNOWN_MAX: Final = 4096
KNOWN_CHARS: Final = 1000
"""How many calls' arguments are remembered in one form, and of what length at most."""


class Counted(Generic[K]):
    """How often each of many things was counted. Never changed: one that counts more shares what it has with the last.

    Its layers grow by halves (as in a log-structured merge tree), so that a count costs the logarithm of all, whether
    it is added or asked for.
    """

    __slots__ = ("_layers",)

    def __init__(self, layers: tuple[dict[K, int], ...] = ()) -> None:
        self._layers = layers

    def __getitem__(self, key: K) -> int:
        """How often this was counted."""
        return sum([layer.get(key, 0) for layer in self._layers])

    def __contains__(self, key: object) -> bool:
        """Whether this was counted at all."""
        return any(key in layer for layer in self._layers)

    def with_each(self, keys: Iterable[K]) -> Counted[K]:
        """Count each of these once more, however often it is among them."""
        added = dict.fromkeys(keys, 1)
        if not added:
            return self
        layers = list(self._layers)
        while layers and len(layers[-1]) <= len(added):
            for key, times in layers.pop().items():
                added[key] = added.get(key, 0) + times
        return Counted((*layers, added))

    def all(self) -> dict[K, int]:
        """Everything that was counted, however it came."""
        counted = Counter[K]()
        for layer in self._layers:
            counted.update(layer)
        return dict(counted)

    def __eq__(self, other: object) -> bool:
        """Whether the same was counted as often."""
        return isinstance(other, Counted) and self.all() == other.all()

    __hash__ = None  # type: ignore[assignment]  # equal ones have other layers


class Tally(NamedTuple):
    """What is known of a run without a look at all its calls and messages."""

    tools: Mapping[str, int] = {}  # nobody changes it
    """How many calls of each tool there were since the user last spoke, with those of the runs that answered some."""
    asked: Counted[tuple[str, str]] = Counted()
    """In how many turns each same call was asked for since then."""
    most_asked: int = 0
    """In how many turns the one that was asked for most."""
    made: int = 0
    """How many calls it has asked for itself since it began, without those that a limit has kept from being sent."""
    made_below: int = 0
    """How many the runs have that answered some of them."""
    ids: Counted[str] = Counted()
    """The ids that models have given to the calls of the conversation."""
    tasks: Mapping[str, tuple[int, ...]] = {}  # as above
    """The places of the calls that became tasks, by their handles: tools may give the same one to several."""
    open_slow: frozenset[int] = frozenset()
    """The places of the submitted calls whose results the model has not seen."""
    spent: Spent = Spent()
    """The tokens and the cost of the runs that have answered calls, and what tools have spent."""
    has_tasks: bool = False
    """Whether the model was given a handle for any call."""
    has_artifacts: bool = False
    """Whether a result was too large to be shown whole."""
    has_media: bool = False
    """Whether any message has images or other media."""

    @classmethod
    def of(cls, messages: Iterable[Message], calls: Sequence[CallRecord], turns_before: int) -> Tally:
        """The tally of these messages and calls, of which the user has seen `turns_before` turns end."""
        tally = cls().with_messages(messages)
        for turn, asked in groupby(calls, attrgetter("turn")):
            of_turn = tuple(asked)
            tally = tally.with_calls(of_turn) if turn > turns_before else tally.with_made(of_turn)
        for place, call in enumerate(calls):
            tally = tally.with_change(place, None, call, is_recent=call.turn > turns_before)
        return tally

    def with_messages(self, messages: Iterable[Message]) -> Tally:
        """The tally once these are said."""
        ids: list[str] = []
        has_media = self.has_media
        for message in messages:
            if isinstance(message, AssistantMessage):
                ids += [call.id for call in message.tool_calls]
            elif isinstance(message, ToolMessage):
                has_media = has_media or bool(message.media)
            elif isinstance(message, UserMessage):
                has_media = has_media or bool(message.images)
        if not ids and has_media is self.has_media:
            return self
        return self._replace(ids=self.ids.with_each(ids), has_media=has_media)

    def with_calls(self, calls: Sequence[CallRecord]) -> Tally:
        """The tally once a reply has asked for these, all its calls."""
        same = {same_call(call) for call in calls}
        asked = self.asked.with_each(same)
        tools = dict(self.tools)
        for call in calls:
            if not call.is_withheld:
                tools[call.tool] = tools.get(call.tool, 0) + 1
        most_asked = max([self.most_asked, *(asked[key] for key in same)])
        return self._replace(made=self.made + _made(calls), tools=tools, asked=asked, most_asked=most_asked)

    def with_made(self, calls: Sequence[CallRecord]) -> Tally:
        """The tally once these were asked for, all the calls of a reply to an earlier word of the user."""
        return self._replace(made=self.made + _made(calls))

    def with_change(self, place: int, before: CallRecord | None, call: CallRecord, *, is_recent: bool) -> Tally:
        """The tally once the call at this place is so; `before`: as it was counted before, None for not at all.

        Its arguments must be the same.
        """
        result = call.result
        if result is None and call.late_result is None and not call.handle:
            return self  # it has not come to anything yet
        if isinstance(result, Returned) and not (result.artifact or result.spent or call.handle or call.is_agents):
            return self  # what nearly every call comes to
        tally = self
        if call.handle or isinstance(result, Submitted):
            tally = tally._with_task(place, before, call)
        if any(isinstance(each, Returned) and each.artifact for each in (result, call.late_result)):
            tally = tally._replace(has_artifacts=True)
        if call.spent is not None and (before is None or before.spent is None):
            tally = tally._with_spent(call.spent, is_recent=is_recent)
        return tally

    def since_user_spoke(self) -> Tally:
        """The tally once the user has spoken again."""
        return self._replace(tools={}, asked=Counted(), most_asked=0)

    def _with_task(self, place: int, before: CallRecord | None, call: CallRecord) -> Tally:
        tasks, handle = dict(self.tasks), handle_of_task(call)
        handle_before = handle_of_task(before) if before is not None else ""
        if handle_before and handle_before != handle:
            tasks[handle_before] = tuple(other for other in tasks[handle_before] if other != place)
            if not tasks[handle_before]:
                del tasks[handle_before]
        if handle:
            tasks[handle] = tuple(sorted({*tasks.get(handle, ()), place}))
        others = self.open_slow - {place}
        return self._replace(
            tasks=tasks,
            open_slow=others | {place} if call.is_slow_and_open else others,
            has_tasks=self.has_tasks or isinstance(call.result, Submitted),
        )

    def _with_spent(self, spent: Spent, *, is_recent: bool) -> Tally:
        so_far = self.spent
        total = Spent(
            input_tokens=so_far.input_tokens + spent.input_tokens,
            output_tokens=so_far.output_tokens + spent.output_tokens,
            cost=so_far.cost + spent.cost,
        )
        made_below = self.made_below + sum(spent.calls.values())
        if not is_recent:
            return self._replace(spent=total, made_below=made_below)
        tools = Counter(self.tools)
        tools.update(spent.calls)
        return self._replace(spent=total, made_below=made_below, tools=dict(tools))


def _made(calls: Sequence[CallRecord]) -> int:
    """How many of these no limit has kept from being sent."""
    return sum([call.refusal is None or call.refusal.kind is not FailureKind.LIMIT for call in calls])


def handle_of_task(call: CallRecord) -> str:
    """The handle that the model or a caller has of a call; "" for one that is no task."""
    return call.result.handle if isinstance(call.result, Submitted) else call.handle


def same_call(call: CallRecord) -> tuple[str, str]:
    """What two calls have in common that ask for the same."""
    arguments = call.arguments
    # The same call of another run, too: it is asked for each call, and mostly again for the note on its result.
    return call.tool, _known(arguments) if len(arguments) <= KNOWN_CHARS else _in_one_form(arguments)


def _in_one_form(arguments: str) -> str:
    """Return arguments as they would be written with their members in order."""
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


_known: Final = functools.lru_cache(maxsize=KNOWN_MAX)(_in_one_form)
