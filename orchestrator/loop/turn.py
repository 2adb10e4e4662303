"""The turn loop: the order of things, and nothing else.

| the run is | what is done |
|---|---|
| over a limit | it fails, once its calls are back: those that were not sent when it reached the limit never are |
| over one at which it wraps up | the model is asked once more, without tools (`ask.py`) |
| over its deadline | it fails |
| THINKING, and an interceptor has blocked it | it fails |
| THINKING, and the user has said more | that becomes part of the conversation |
| THINKING | the model is asked (`ask.py`) |
| CALLING | its calls are made (`call.py`) |
| PARKED | what is back of its slow calls is taken up (`rest.py`) |
| WAITING | late results are delivered (`rest.py`) |

Every step is written down before the next one begins, and each step begins from what is written down: a run that was
interrupted goes on through the same lines as one that was not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from toolfleet.errors import BrokerUnreachable, StoreUnreachable, ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.messages import UserMessage
from toolfleet.metrics.of_runs import TurnClock
from toolfleet.orchestrator.errors import LostRun, NewerVersion, Overtaken, RunIsOver
from toolfleet.orchestrator.loop.ask import Asking
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.loop.call import Calling
from toolfleet.orchestrator.loop.ending import Ending
from toolfleet.orchestrator.loop.rest import Resting
from toolfleet.orchestrator.run.events import CallsHandedOver, MessagesHeard
from toolfleet.orchestrator.run.fault import Fault, fault_in
from toolfleet.orchestrator.run.limits import TIMED_OUT, Reached, breach, has_timed_out
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import UserSpoke

log = FactLog("toolfleet.orchestrator")


@dataclass(slots=True)
class TurnLoop:
    """Takes a run as far as it goes now."""

    asking: Asking
    calling: Calling
    resting: Resting
    ending: Ending
    _is_draining: bool = field(default=False, init=False)

    def drain(self) -> None:
        """Stop every run after the step it is at, from now on."""
        self._is_draining = True

    async def drive(self, work: RunAtWork) -> None:
        """Take steps until the run has ended or rests. Whatever fails, the run ends and says why.

        Raises LostRun, RunIsOver and NewerVersion when the run is not ours to go on with, StoreUnreachable and
        BrokerUnreachable when it has to be read again later.
        """
        turn = TurnClock()
        try:
            while not work.run.state.is_terminal and not self._is_draining:
                if work.run.state is State.THINKING:
                    turn.begin()
                may_go_on = await self._step_or_look_again(work)
                if work.run.state is not State.CALLING:
                    turn.end()
                if not may_go_on:
                    return
        except (LostRun, RunIsOver, NewerVersion, StoreUnreachable, BrokerUnreachable):
            raise
        except ToolfleetError as error:
            await self._fail(work, str(error), fault_in(error))
        except Exception as error:  # one of the few places that may catch everything: a run must end in a state
            log.exception("run_failed", run_id=work.run.run_id)
            await self._fail(work, f"internal error: {type(error).__name__}: {error}")

    async def _step_or_look_again(self, work: RunAtWork) -> bool:
        try:
            return await self._step(work)
        except Overtaken as news:
            # The journal has folded in what others wrote: the next step begins from there.
            log.info("run_overtaken", run_id=work.run.run_id, reason=str(news))
            return True

    async def _step(self, work: RunAtWork) -> bool:
        """Take one step. Whether there may be another one now."""
        run = work.run
        match run.state:
            case State.THINKING if run.blocked:
                await self._fail(work, run.blocked)
            case State.THINKING if run.unheard and not run.streamed:
                await _hear(work)
            case State.THINKING:
                await self._think(work, breach(run, time.time()))
            case State.CALLING if has_timed_out(run, time.time()):
                await self._fail(work, TIMED_OUT)
            case State.CALLING | State.PARKED if run.only_callers_calls_left and run.open_slow_calls:
                return await self.resting.deliver(work)
            case State.CALLING | State.PARKED if run.only_callers_calls_left:
                await work.journal.append(CallsHandedOver())
            case State.CALLING:
                await self.calling.call(work)
            case State.PARKED:
                return await self.resting.collect(work)
            case _:
                return await self.resting.deliver(work)
        return True

    async def _think(self, work: RunAtWork, over: Reached | None) -> None:
        if over is None or over.wraps_up:
            await self.asking.ask(work, over)
        else:
            await self._fail(work, over.reason)

    async def _fail(self, work: RunAtWork, reason: str, fault: Fault | None = None) -> None:
        """End the run as failed; nobody wants what is still under way for it."""
        under_way = work.run.calls_that_may_have_begun
        await work.journal.append(await self.ending.of(work.run, "failed", reason, fault))
        await self.ending.call_off(under_way, reason)


async def _hear(work: RunAtWork) -> None:
    """Make what the user has said part of the conversation: written down, so that it is heard once, whoever goes on."""
    known = len(work.run.messages)
    run = await work.journal.append(MessagesHeard())
    if work.emit:
        said = tuple(message for message in run.messages[known:] if isinstance(message, UserMessage))
        work.emit(UserSpoke(run_id=run.run_id, messages=said))
