"""What the calls of one reply share, and who hears of them. Sends nothing, and decides nothing."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolfleet.artifacts import Asker, OfRun, OfTenant
from toolfleet.call_news import News, Yields
from toolfleet.calls import Failed, Returned, ToolCall, ToolResult
from toolfleet.masks import mask_arguments
from toolfleet.messages import Message
from toolfleet.orchestrator.run.events import CallRecord, RunStarted
from toolfleet.orchestrator.run.terms import Slow
from toolfleet.orchestrator.run.updates import CallAwaitsApproval, CallEnded, CallStarted, RunUpdate, told
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.tools.chain import NO_CHAIN, Chain
from toolfleet.streams import Priority
from toolfleet.tool import ToolSpec
from toolfleet.tracing import Trace
from toolfleet.trusted import trusted

_call_started, _call_ended = trusted(CallStarted), trusted(CallEnded)

Emit = Callable[[RunUpdate], None]
"""Hears what happens to a run while it happens. It must not block."""

BeginRun = Callable[[RunStarted], Awaitable[bool]]
"""Stores a run and works on it. Whether it is new: one that is stored already is left as it is."""


class CallScope(NamedTuple):
    """What the calls of one reply, or of one caller, share. A value: the calls themselves are a `CallGroup`."""

    run_id: str
    offered: Mapping[str, ToolSpec]
    emit: Emit | None = None
    """Told of what happens to the calls; None: nobody looks, and no update is made."""
    begin: BeginRun | None = None
    """Begins the run of an agent that is called; None where no agent can be."""
    slow: Slow = "wait"
    patience_s: float | None = None
    """How long its calls may take before they count as slow; None: what each tool says."""
    context: Mapping[str, Any] = {}  # nobody changes it
    deadline_unix_s: float | None = None
    interceptors: Chain = NO_CHAIN
    search: Callable[[str], Awaitable[Returned | Failed]] | None = None
    """Answers a call of `search_tools`."""
    values: Mapping[str, Any] = {}  # as above
    """What the run's tools share."""
    history: Sequence[Message] = ()
    """The conversation so far, for tools that want it."""
    run: Run | None = None
    """The run whose calls they are, as it stood when its reply had come; None for a caller with a loop of their own."""
    tenant: str = ""
    """The tenant whose calls they are."""
    subject: str = ""
    """Who asks for them."""
    priority: Priority = Priority.NORMAL
    gone: Mapping[str, str] = {}  # as above
    """What is said of tools whose version that the run began with no live worker serves."""
    trace: Trace | None = None
    """The span below which they are made; None where nobody traces them."""
    tasks: Mapping[str, CallRecord] = {}  # as above
    """The run's earlier calls that became tasks, for the built-in tools."""

    @property
    def asker(self) -> Asker:
        """Who reads on in a large result: the run, or a caller what any call of their tenant was given."""
        return OfTenant(self.tenant) if self.run is None else OfRun(self.run_id)

    def tell_start(self, call: ToolCall, spec: ToolSpec) -> None:
        """Say that a call is on its way. Whoever looks sees no secrets."""
        if self.emit:
            self.emit(
                _call_started(
                    run_id=self.run_id,
                    call_id=call.call_id,
                    tool=call.tool,
                    arguments=mask_arguments(call.arguments, spec.input_schema),
                    long_running=spec.long_running,
                    at_unix_s=time.time(),
                )
            )

    def tell_waiting(self, call: CallRecord) -> None:
        """Say that a person has to decide about a call. Whoever looks sees no secrets."""
        if self.emit:
            self.emit(
                CallAwaitsApproval(
                    run_id=self.run_id,
                    call_id=call.call_id,
                    tool=call.tool,
                    arguments=mask_arguments(call.arguments, self.offered[call.tool].input_schema),
                    digest=call.digest,
                )
            )

    @property
    def on_news(self) -> Callable[[str, str, News], None] | None:
        """Who is told what comes of a call that goes on, by its id and its tool; None where nobody looks."""
        return self._tell_news if self.emit else None

    @property
    def on_end(self) -> Callable[[str, str, ToolResult], None] | None:
        """Who is told that a call has its result, likewise."""
        return self.tell_end if self.emit and not self.interceptors.hides_results else None

    def _tell_news(self, call_id: str, tool: str, news: News) -> None:
        # A piece of a result has been seen by no interceptor.
        if self.emit and not (self.interceptors.hides_results and isinstance(news, Yields)):
            self.emit(told(self.run_id, call_id, tool, news))

    def tell_end(self, call_id: str, tool: str, result: ToolResult) -> None:
        """Say that a call has its result."""
        if self.emit:
            self.emit(_call_ended(run_id=self.run_id, call_id=call_id, tool=tool, result=result, at_unix_s=time.time()))
