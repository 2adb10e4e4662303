"""A tool without a fleet: the context that it is given, and a call that takes the way it takes on a worker.

Knows no server and no process. What lies between a model's arguments and the result is done by the worker's own code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from toolfleet.calls import Failed, Progress, Returned, Submitted, ToolCall
from toolfleet.context import Context, without_address
from toolfleet.interceptors import ToolInterceptor
from toolfleet.misspelt import exact
from toolfleet.tool import Tool
from toolfleet.workers.tool.execute import execute


@dataclass(slots=True, eq=False)
class RecordingContext(Context):
    """A call's context that keeps what the tool says about its work: every progress and every checkpoint, in order."""

    progressed: list[Progress] = field(default_factory=list)
    checkpoints: list[Any] = field(default_factory=list)
    cancel_requested: threading.Event = field(default_factory=threading.Event, repr=False)

    def cancel(self) -> None:
        """Nobody wants the result any more: from now on `cancelled` is true, from any thread."""
        self.cancel_requested.set()


@exact()
def context(
    *,
    tool: str = "tool",
    call_id: str = "run.1.0",
    context: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    attempt: int = 1,
    last_checkpoint: Any = None,
    time_left_s: float = 600.0,
    callback_url: str | None = None,
    tenant: str = "",
    subject: str = "",
) -> RecordingContext:
    """The context of a call that nobody made: hand it to the tool, then look at what it has recorded.

    `context` is the caller's own, `state` the run's; both and the checkpoint come to the tool as JSON leaves them.
    Without a `callback_url` asking for it raises NoCallback, as on a worker that was told no public address.
    """
    made = RecordingContext(
        call_id=call_id,
        run_id=call_id.partition(".")[0],
        tool=tool,
        deadline_unix_s=time.time() + time_left_s,
        attempt=attempt,
        context=_sent(context or {}),
        state=_sent(state or {}),
        last_checkpoint=_sent(last_checkpoint),
        address_of=without_address if callback_url is None else lambda _call_id, _expires_unix_s: callback_url,
        tenant=tenant,
        subject=subject,
    )
    made.spendings = []
    made.report = made.progressed.append
    made.is_cancelled = made.cancel_requested.is_set
    made.keep = lambda _context, text: made.checkpoints.append(from_json(text))
    return made


async def call(
    tool: Tool[..., Any],
    arguments: str | Mapping[str, Any],
    ctx: Context | None = None,
    *,
    interceptors: Sequence[ToolInterceptor] = (),
) -> Returned | Failed | Submitted:
    """What a model's call of `tool` comes to: arguments are read, repaired and checked, errors become results.

    A text is taken as a model wrote it, a dict is written as JSON first. `interceptors` are a worker's own, outermost
    first; the tool's stand inside them. Nothing that the tool raises is raised here. Two things are left to a fleet:
    large results are not cut, and a blocking tool runs right here, where its time limit cannot end it.
    """
    given = context(tool=tool.spec.name) if ctx is None else ctx
    made = ToolCall(
        call_id=given.call_id,
        run_id=given.run_id,
        tool=tool.spec.name,
        arguments=arguments if isinstance(arguments, str) else to_json(dict(arguments)).decode(),
        deadline_unix_s=given.deadline_unix_s,
        reply_to="",
        context=dict(given.context),
        state=dict(given.state),
        tenant=given.tenant,
        subject=given.subject,
    )
    return await execute(made, tool, given, threads=None, interceptors=tuple(interceptors))


def _sent(value: Any) -> Any:
    """As it is after its way through Redis: a tuple has become a list."""
    return from_json(to_json(value))
