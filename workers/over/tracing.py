"""The span of an attempt at a call over HTTPS: below the call's, by the SDK that the worker's user has set up.

Without one, and in a trace that is not recorded, there is none; what the caller carries along reaches the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolfleet.calls import Failed, Returned, Submitted, ToolCall
from toolfleet.tool import ToolSpec
from toolfleet.tracing import find_tracing
from toolfleet.tracing.conventions import ATTEMPT, OUTCOME, WORKER, outcome_of
from toolfleet.tracing.trace import is_sampled
from toolfleet.workers.perform.attempts import attributes_of, outcome_of_error, sending_of

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing

Outcome = Returned | Failed | Submitted
Ended = Callable[[Outcome], None]


class Spans:
    """The spans of one worker."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._tracing = find_tracing()

    @contextmanager
    def around(self, call: ToolCall, spec: ToolSpec, queue: str, attempt: int) -> Iterator[Ended]:
        """Be in the attempt's span while its tool runs. What is given back is told what it has come to."""
        if self._tracing is None or call.traceparent is None:
            yield lambda _result: None
        elif not is_sampled(call.traceparent):
            token = self._tracing.attach(call.traceparent, call.tracestate, call.baggage)
            try:
                yield lambda _result: None
            finally:
                self._tracing.detach(token)
        else:
            about = {**attributes_of(call, spec.model_copy(update={"queue": queue})), ATTEMPT: attempt}
            with self._recorded(self._tracing, call, queue, {**about, WORKER: self._worker}) as ended:
                yield ended

    @contextmanager
    def _recorded(self, tracing: Tracing, call: ToolCall, queue: str, about: dict[str, str | int]) -> Iterator[Ended]:
        span = tracing.open(
            f"process {queue}",
            call.traceparent or "",
            about,
            tracestate=call.tracestate,
            kind="consumer",
            links=(sending_of(call),),
        )
        token = tracing.attach_span(span, call.baggage)
        came_to = ("", "")

        def ended(result: Outcome) -> None:
            nonlocal came_to
            came_to = outcome_of(result)

        try:
            yield ended
        except BaseException as error:
            came_to = outcome_of_error(error)
            raise
        finally:
            tracing.detach(token)
            span.set_attribute(OUTCOME, came_to[0])
            tracing.end(span, came_to[1])
