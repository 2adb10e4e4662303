"""What webhooks are made of, as records: endpoints, messages that are owed to them, and attempts. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from pydantic import Field

from toolfleet.calls import Record

ENDPOINT_PREFIX: Final = "we_"
MESSAGE_PREFIX: Final = "msg_"
PUSH_PREFIX: Final = "a2a_"
"""How that begins under which pushes of A2A are kept, in the place of an endpoint's id."""

SHOWN_OF_ANSWER_CHARS: Final = 200
"""So much of what a receiver answered is kept, for people who look for its fault."""


class WebhookEvent(StrEnum):
    """What can be told."""

    RUN_COMPLETED = "run.completed"
    """A run has ended with an answer."""
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    APPROVAL_REQUESTED = "approval.requested"
    """A call waits for a person, of a run or of an agent's run below it."""
    QUESTION_ASKED = "question.asked"
    """A running tool asks a person something."""
    JOB_SETTLED = "job.settled"
    """A slow call of a run, of which a handle was given out, has its result."""
    TEST = "webhook.test"
    """Somebody has asked for it, to see whether an endpoint works."""
    TASK = "a2a.task"
    """A task of A2A asks a person or has ended: for its own configurations, and in the protocol's words."""


SUBSCRIBABLE: Final = tuple(event for event in WebhookEvent if event not in {WebhookEvent.TEST, WebhookEvent.TASK})


class HiddenSecret(Record):
    """A secret as it is stored, unreadable without that of the fleet; `until_unix_s` for one that was replaced."""

    hidden: str = Field(repr=False)
    until_unix_s: float | None = None


class Endpoint(Record):
    """Where webhooks of one tenant go, and which."""

    v: Literal[1] = 1
    endpoint_id: str
    tenant: str = ""
    url: str
    events: tuple[WebhookEvent, ...] = SUBSCRIBABLE
    """Of every run of the tenant. A run that names the endpoint tells it of everything."""
    content: bool = False
    """Whether messages hold what was said: answers, reasons, arguments, questions and results."""
    description: str = ""
    secrets: tuple[HiddenSecret, ...] = Field(default=(), repr=False)
    """The one that is signed with now first; then one that was replaced lately."""
    created_unix_s: float
    by: str = ""
    """Who has added it, as the door knows them."""
    disabled: str = ""
    """Why nothing is sent there any more; "" where it is."""

    def wants(self, event: WebhookEvent, *, tenant: str, named: str) -> bool:
        """Whether it hears of this event of a run of a tenant that names an endpoint, or none."""
        if self.tenant != tenant or self.disabled:
            return False
        return event in self.events or named == self.endpoint_id


class Notice(NamedTuple):
    """Something to be told, before it is a message for anybody."""

    event: WebhookEvent
    subject: str
    """What it is about, which tells it apart from others of its event in the same entry."""
    data: dict[str, object]
    """Ids, and where things stand."""
    content: dict[str, object]
    """What else an endpoint is told that asks for it."""


class Owed(Record):
    """One message that is owed to one endpoint, as it will be sent each time."""

    v: Literal[1] = 1
    message_id: str
    """The same for all endpoints, and for each attempt: `webhook-id`."""
    endpoint_id: str
    tenant: str
    event: WebhookEvent
    about: str = ""
    """The run, or the call, for people who look at lists."""
    config_id: str | None = None
    """Which of the run's configurations it is for, of a push of A2A; then no endpoint is meant."""
    made_unix_s: float
    body: str = Field(repr=False)

    @property
    def delivery_id(self) -> str:
        """What it is kept under."""
        return f"{self.message_id}.{self.endpoint_id}"


class WebhookAttempt(Record):
    """What came of sending a message once."""

    delivery_id: str
    endpoint_id: str
    event: WebhookEvent
    about: str = ""
    number: int
    """The how-manieth attempt at this message it was."""
    at_unix_s: float
    took_s: float
    status: int | None = None
    """What the receiver answered; None where it did not."""
    error: str = ""
    """Why it is not delivered; "" where it is."""
    answer: str = ""
    """The beginning of what it said about that."""
    next_unix_s: float | None = None
    """When it is sent again; None where it is not."""

    @property
    def is_delivered(self) -> bool:
        """Whether it was taken."""
        return not self.error


class DeadWebhook(NamedTuple):
    """A message that was given up."""

    owed: Owed
    attempts: int
    given_up_unix_s: float
    last: WebhookAttempt | None


def named_by_events(words: Iterable[str]) -> tuple[WebhookEvent, ...]:
    """Return the events of these names, each once and in our order. Raises ValueError, which says what there is."""
    names = set(words)
    known = {event.value for event in SUBSCRIBABLE}
    if unknown := sorted(names - known):
        raise ValueError(f"no event is called {unknown[0][:80]!r}: there are {', '.join(SUBSCRIBABLE)}")
    return tuple(event for event in SUBSCRIBABLE if event.value in names)
