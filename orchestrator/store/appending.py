"""The command that stores an event: its keys and its arguments, made from the run that the event leads to.

Nothing is sent from here. What was made can be sent again as it is, when the store has lost it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolfleet.orchestrator.run.events import RunEvent, RunStarted
from toolfleet.orchestrator.run.outcome import result_for_parent
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.chain import Link
from toolfleet.orchestrator.store.history import Entry
from toolfleet.orchestrator.store.names import NOBODY, calls_named
from toolfleet.orchestrator.store.run_states import score_of
from toolfleet.settings import Settings
from toolfleet.wire import Seal


class Heading(NamedTuple):
    """What an event writes into the head of its run, beside how the run stands."""

    owner: str = ""
    """Who works on it from now; "" leaves it as it is."""
    may_be_adopted: bool = False
    """Whether any orchestrator with its model may take it."""
    fields: Mapping[str, Any] | None = None
    """What else stands there from its beginning."""


UNCHANGED: Final = Heading()


Owing = Callable[[Run, RunStarted | RunEvent, bytes], Sequence[tuple[str, bytes]]]
"""Says which webhooks are owed for the entry with a digest: the id of each, and what is to be sent, sealed."""


def nothing_owed(_run: Run, _event: RunStarted | RunEvent, _digest: bytes) -> Sequence[tuple[str, bytes]]:
    """Owe nothing to anybody."""
    return ()


class Appending(NamedTuple):
    """An entry that is about to be stored, and the command that does it."""

    run: Run
    """What it leads to."""
    event: bytes
    follows: Link
    link: Link
    """Its place, but for the id that the store will give it."""
    keys: list[str]
    args: list[Any]
    owes: bool = False
    """Whether the command also stores webhooks that are owed for it."""


class Appendings:
    """Makes the commands of one fleet."""

    def __init__(self, settings: Settings, seal: Seal, owing: Owing = nothing_owed) -> None:
        # Made once: whoever remembers commands holds what is the same in all of them once, too.
        keys = settings.keys
        self._settings = settings
        self._seal = seal
        self._owing = owing
        self._keys = keys
        self._runs, self._runs_ending, self._run_names = keys.runs(), keys.runs_ending(), keys.run_names()
        self._run_states = keys.run_states()
        self._unfinished_ms = int(settings.keep_unfinished_s * 1000)
        self._prefixes = (
            *(keys.result(""), keys.replies(""), keys.owned(""), keys.head(""), keys.runs_of("")),
            *(keys.pushes(""), keys.pushes_due()),
        )

    def of(self, run: Run, event: RunStarted | RunEvent, follows: Link, how: Heading = UNCHANGED) -> Appending:
        """Seal an event behind the entry that it follows; `run` is what it leads to."""
        text = event.__pydantic_serializer__.to_json(event)
        position, digest = follows.position + 1, follows.digest_with(text)
        seal = self._seal.sign_entry(run.run_id, position, digest).encode()
        keys, args = self.command(run, text, follows, seal, how, named=calls_named(self._keys, run, event))
        write = Appending(run, text, follows, Link(position, digest, seal, ""), keys, args)
        owed = self._owing(run, event, digest)
        return self._with_webhooks(write, owed) if owed else write

    def again(self, run: Run, entry: Entry, event: bytes, follows: Link, how: Heading) -> Appending:
        """Return the same for an entry that was stored before, under the seal that it has."""
        link = entry.link
        keys, args = self.command(run, event, follows, link.seal, how)
        write = Appending(run, event, follows, link, keys, args)
        owed = self._owing(run, entry.event, link.digest)
        return self._with_webhooks(write, owed) if owed else write

    def _with_webhooks(self, write: Appending, owed: Sequence[tuple[str, bytes]]) -> Appending:
        """Return the same with the webhooks that are owed for it, which are stored if it is."""
        keys = [*write.keys, self._keys.webhooks_due(), *(self._keys.webhook(name) for name, _ in owed)]
        counts = [len(write.keys), len(write.args), int(self._settings.keep_webhooks_s * 1000)]
        args = [*counts, *write.args, *(part for pair in owed for part in pair)]
        return write._replace(keys=keys, args=args, owes=True)

    def command(
        self,
        run: Run,
        event: bytes,
        follows: Link,
        seal: bytes,
        how: Heading,
        *,
        named: Mapping[str, str] = NOBODY,
    ) -> tuple[list[str], list[Any]]:
        """The keys and arguments of the script that stores an event which is sealed already."""
        keys, run_id, tenant, has_ended = self._keys, run.run_id, run.terms.tenant, run.state.is_terminal
        awaiting = _awaiting(run)
        where = [
            keys.run(run_id),
            keys.head(run_id),
            self._runs,
            self.listed(tenant),
            keys.approvals(tenant),
            self._run_states,
        ]
        what = [
            follows.seal,
            event,
            seal,
            run.state.value,
            int(self._ttl_s(run) * 1000) if has_ended else self._unfinished_ms,
            run.turn,
            len(run.calls),
            awaiting,
            score_of(run, awaiting),
            run_id,
        ]
        if not has_ended and how == UNCHANGED:
            # As for most: the run only goes on.
            return [*where, *named], [*what, "", int(self._done_ttl_s(run) * 1000), *named.values()] if named else what
        parent = run.parent_call_id or ""
        return [*where, keys.unowned(run.model), self._runs_ending, self._run_names], [
            *what,
            int(has_ended),
            run_id,
            how.owner,
            int(how.may_be_adopted),
            parent,
            self._seal.close_result(result_for_parent(run), parent) if parent and has_ended else "",
            *self._prefixes,
            tenant,
            *(part for field in (how.fields or {}).items() for part in field),
        ]

    def listed(self, tenant: str) -> str:
        """Return the list that holds the runs of a tenant; runs without one are in that of all only."""
        return self._keys.runs_of(tenant) if tenant else self._runs

    def _done_ttl_s(self, run: Run) -> float:
        return run.terms.keep_s or self._settings.keep_done_s

    def _ttl_s(self, run: Run) -> float:
        """How long a run is kept that has ended so."""
        settings = self._settings
        match run.state:
            case State.FAILED:
                return run.terms.keep_s or settings.keep_failed_s
            case State.CANCELLED:
                return run.terms.keep_s or settings.keep_cancelled_s
            case _:
                return self._done_ttl_s(run)


def _awaiting(run: Run) -> int:
    """Return how many calls wait for a person; they are looked for only where there can be any."""
    return len(run.awaiting_approval) if run.state in {State.CALLING, State.PARKED} else 0
