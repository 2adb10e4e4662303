"""Celery's remote control, signed: a worker obeys who has its fleet's secret, and answers anybody a few questions.

A signed command travels as arguments of a command of its own. It is for once, for a few minutes, and for the workers
that were there when it was signed.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from celery.app.control import Control
from kombu.log import get_logger
from kombu.pidbox import Mailbox, Node

from toolfleet.errors import Refused
from toolfleet.wire import Seal

logger = get_logger("toolfleet.workers")

SIGNED: Final = "toolfleet_signed"
"""The command whose arguments are a signed command."""

QUESTIONS: Final = frozenset(
    {"active", "active_queues", "clock", "ping", "registered", "reserved", "revoked", "scheduled", "stats"}
)
"""What anybody may ask, without arguments: what it tells stands in Redis too, and it changes nothing."""

VALID_S: Final = 300.0
"""How old a signed command may be, or how far in the future by the worker's clock."""

ON_ITS_WAY_S: Final = 2.0
"""One that was signed so shortly before a worker began was on its way to others, which is nothing to tell of."""

QUESTIONS_PER_S: Final = 20.0
QUESTIONS_AT_ONCE: Final = 40.0
MAX_KEY_CHARS: Final = 200


class SignedMailbox(Mailbox):  # type: ignore[misc]  # kombu ships no types
    """Sends commands signed, and has nodes that ask for it."""

    seal: Seal
    fleet: str
    """The namespace: fleets that share a server, and perhaps a secret, do not share commands."""
    before_command: Callable[[], object] = staticmethod(lambda: None)
    """What a worker does before it carries out a command or answers a question."""

    def Node(self, *args: Any, **kwargs: Any) -> GuardedNode:  # noqa: N802  # kombu's name
        """Return the mailbox of one worker."""
        return GuardedNode(*args, **kwargs, mailbox=self)

    def _publish(self, type: str, arguments: Any, destination: Any = None, **options: Any) -> None:  # noqa: A002  # kombu's signature
        fields = {"method": type, "arguments": arguments, "destination": destination}
        fields |= {name: options.get(name) for name in ("pattern", "matcher")}
        fields |= {"fleet": self.fleet, "at": time.time(), "nonce": secrets.token_hex(8)}
        text = orjson.dumps(fields).decode()
        signed = {"text": text, "mac": self.seal.sign_order(text)}
        super()._publish(SIGNED, signed, destination, **options)


class SignedControl(Control):  # type: ignore[misc]  # celery ships no types
    """Celery's `app.control`, whose commands are signed."""

    Mailbox = SignedMailbox

    def __init__(self, app: Any, seal: Seal, fleet: str) -> None:
        super().__init__(app)
        self.mailbox.seal = seal
        self.mailbox.fleet = fleet


class BeforeItsTime(Refused):
    """A command that was on its way to others when this worker began."""


class GuardedNode(Node):  # type: ignore[misc]  # kombu ships no types
    """Has a worker do what is signed, and answer the questions that anybody may ask."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._guard = Guard(self.mailbox.seal, self.mailbox.fleet, self.mailbox.reply_exchange.name)

    def handle_message(self, body: Any, message: Any = None) -> Any:
        """Dispatch a command, or count what is none."""
        try:
            command = self._guard.believed(body)
        except BeforeItsTime:
            return None
        except Refused as refusal:
            if refuse := getattr(self.channel, "refuse", None):
                refuse(str(refusal))
            else:
                logger.warning("a control command is refused: %s", refusal)
            return None
        self.mailbox.before_command()
        return super().handle_message(command, message)


class Guard:
    """Decides which commands a worker hears."""

    def __init__(self, seal: Seal, fleet: str, reply_exchange: str, clock: Callable[[], float] = time.time) -> None:
        self._seal = seal
        self._fleet = fleet
        self._reply_exchange = reply_exchange
        self._clock = clock
        self._began_unix_s = clock()
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._questions = QUESTIONS_AT_ONCE
        self._asked_unix_s = self._began_unix_s

    def believed(self, body: object) -> dict[str, Any]:
        """Return a command as kombu's node takes it. Raises Refused."""
        if type(body) is not dict:
            raise Refused("a control command is no object")
        command = self._ordered(body) if body.get("method") == SIGNED else self._asked(body)
        return {**command, **self._place_of_reply(body)}

    def _ordered(self, body: Mapping[str, Any]) -> dict[str, Any]:
        arguments = body.get("arguments")
        if type(arguments) is not dict:
            raise Refused("a signed control command has no text")
        text, now_unix_s = self._seal.open_order(arguments.get("text"), arguments.get("mac")), self._clock()
        order: dict[str, Any] = orjson.loads(text)
        at_unix_s, nonce = float(order.pop("at")), str(order.pop("nonce"))
        if order.pop("fleet") != self._fleet:
            raise Refused("a control command for another fleet")
        if self._began_unix_s - ON_ITS_WAY_S <= at_unix_s < self._began_unix_s:
            raise BeforeItsTime("a control command was signed just before this worker began")
        if abs(now_unix_s - at_unix_s) > VALID_S or at_unix_s < self._began_unix_s:
            raise Refused("a control command was signed before this worker began, or is old: are the clocks right?")
        self._remember(nonce, at_unix_s + VALID_S, now_unix_s)
        return order

    def _remember(self, nonce: str, until_unix_s: float, now_unix_s: float) -> None:
        if nonce in self._seen:
            raise Refused("a control command came twice")
        while self._seen and next(iter(self._seen.values())) < now_unix_s - VALID_S:
            self._seen.popitem(last=False)
        self._seen[nonce] = until_unix_s

    def _asked(self, body: Mapping[str, Any]) -> dict[str, Any]:
        method, destination = body.get("method"), body.get("destination")
        if not isinstance(method, str) or method not in QUESTIONS:
            raise Refused("a control command that nobody has signed")
        # A pattern is matched as a regular expression, which can take for ever.
        if body.get("pattern") or body.get("matcher") or not isinstance(destination, list | None):
            raise Refused("a question to workers that are not named")
        self._take_turn()
        return {"method": method, "arguments": {}, "destination": destination}

    def _take_turn(self) -> None:
        now_unix_s = self._clock()
        passed_s, self._asked_unix_s = max(0.0, now_unix_s - self._asked_unix_s), now_unix_s
        self._questions = min(QUESTIONS_AT_ONCE, self._questions + passed_s * QUESTIONS_PER_S) - 1
        if self._questions < 0:
            self._questions = 0.0
            raise Refused("more questions than a worker answers to those who do not sign")

    def _place_of_reply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        reply_to, ticket = body.get("reply_to"), body.get("ticket")
        if reply_to is None:
            return {}
        key = reply_to.get("routing_key") if type(reply_to) is dict else None
        if type(key) is not str or len(key) > MAX_KEY_CHARS or type(ticket) is not str or len(ticket) > MAX_KEY_CHARS:
            raise Refused("a control command does not say where its answer goes")
        if reply_to.get("exchange") != self._reply_exchange:
            raise Refused("a control command wants its answer where no answers go")
        return {"reply_to": {"exchange": self._reply_exchange, "routing_key": key}, "ticket": ticket}
