"""Tools with `cache_s`: a result is given again to whoever asks the same, and asked for once by those who ask at once.

Decides what "the same" is. Runs nothing and settles nothing: it stands before a run and behind it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
import redis.asyncio

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.calls import Failed, Returned, Submitted, ToolCall
from toolfleet.context import FromContext
from toolfleet.errors import OperatorError
from toolfleet.kept_results import KeptResults
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.wire import Seal
from toolfleet.workers.delivery.boarding import Boarded, Boarding
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.perform.endings import Ending
from toolfleet.workers.perform.told_apart import told_apart
from toolfleet.workers.tool.failures import expired

log = FactLog("toolfleet.workers")

Outcome = Returned | Failed | Submitted | Ending

_ELSEWHERE: Final = {Boarded.WAITS: Ending.PASSED_ON, Boarded.LOST: Ending.TAKEN_OVER}
"""How this worker ends a call that it does not run."""

AGAIN: Final = {"cached": True}
"""What tells the caller that a result was given again."""


class SharedAnswers:
    """The shared answers of one event loop."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, *, is_surrounded: bool) -> None:
        """`is_surrounded`: interceptors of the worker stand around its tools."""
        self._limits: ArgumentLimits = settings.argument_limits
        self._is_surrounded = is_surrounded
        self._kept = KeptResults(client, settings.keys, seal)
        self._boarding = Boarding(client, settings.keys)

    def question(self, delivery: Delivery, call: ToolCall, tool: Tool[..., Any]) -> str:
        """Return what stands for the question that a call asks; "" for one that must be asked anew."""
        if tool.spec.cache_s is None or call.undoes is not None or delivery.cancelled or delivery.sent_once:
            return ""
        try:
            arguments = told_apart(tool.bind(call.arguments, self._limits).values)
            asked = [tool.spec.name, tool.spec.contract, arguments, call.tenant, told_apart(self._seen(call, tool))]
            text = orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)
        except Exception:  # noqa: BLE001  # a validator of the tool's author may raise anything; the run will tell of it
            return ""
        return hashlib.sha256(text).hexdigest()

    async def answer(
        self,
        question: str,
        delivery: Delivery,
        call: ToolCall,
        tool: Tool[..., Any],
        run: Callable[[], Awaitable[Outcome]],
    ) -> Outcome:
        """Return the answer that is kept, or that `run` finds; PASSED_ON if another call is finding it."""
        known = await self._known(question, delivery, call)
        if known is not None:
            return known
        found = await run()
        if isinstance(found, Returned) and _may_be_kept(found) and tool.spec.cache_s is not None:
            await self._keep(question, found.model_copy(update={"repaired": False, "spent": None}), tool.spec.cache_s)
        return found

    async def end(self, question: str, delivery: Delivery, call: ToolCall, outcome: Outcome) -> None:
        """Let those go on that wait for the answer, once this call is settled."""
        if delivery.stream:
            await self._boarding.land(delivery, call, question, is_kept=_may_be_kept(outcome))

    async def _known(self, question: str, delivery: Delivery, call: ToolCall) -> Returned | Failed | Ending | None:
        """Return what there is instead of a run, None if this call is to run."""
        try:
            return await self._found(question, delivery, call)
        except COMMAND_FAILED as error:  # nobody has said until its deadline what it is to do
            log.warning("answer_not_looked_for", call_id=call.call_id, error=str(error))
            return expired(call.tool)

    async def _found(self, question: str, delivery: Delivery, call: ToolCall) -> Returned | Ending | None:
        if not delivery.stream:  # another broker: nobody waits there, each that finds nothing asks for itself
            return _again(await self._read(question))
        seat = await self._boarding.board(delivery, call, question)
        if seat.boarded is Boarded.KEPT:
            if (kept := _again(await self._read(question, seat.answer))) is not None:
                return kept
            seat = await self._boarding.board(delivery, call, question, is_alone=True)
        return _ELSEWHERE.get(seat.boarded)

    async def _read(self, question: str, sealed: bytes | None = None) -> Returned | None:
        """Return what is kept; None for what is not ours. A Redis that is away costs a run, no failure."""
        try:
            return await (self._kept.get(question) if sealed is None else self._kept.believed(question, sealed))
        except (redis.RedisError, OperatorError) as error:
            log.warning("kept_result_not_read", error=str(error))
            return None

    async def _keep(self, question: str, result: Returned, ttl_s: float) -> None:
        try:
            await self._kept.put(question, result, ttl_s)
        except (redis.RedisError, OperatorError) as error:
            log.warning("result_not_kept", error=str(error))

    def _seen(self, call: ToolCall, tool: Tool[..., Any]) -> Any:
        """Return what the tool, or what stands around it, can see of who asks: an answer may depend on all of that."""
        injections = [injection for _, injection in tool.injections]
        if self._is_surrounded or tool.interceptors or any(not isinstance(each, FromContext) for each in injections):
            return [call.context, call.subject, call.state]
        keys = [each.key for each in injections if isinstance(each, FromContext)]
        return {key: call.context[key] for key in keys if key in call.context}  # null is not what is not there


def _may_be_kept(outcome: Outcome) -> bool:
    """Whether it may be given again: no failure, and nothing that changes what a run's tools share."""
    return isinstance(outcome, Returned) and not outcome.state


def _again(kept: Returned | None) -> Returned | None:
    return None if kept is None else kept.model_copy(update={"attributes": {**kept.attributes, **AGAIN}})
