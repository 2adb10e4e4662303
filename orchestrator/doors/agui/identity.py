"""What things are called in AG-UI. Pure: whoever asks the same finds the same, on any server and after any cut.

A run's id follows from who asks and from the thread and run that the client names, so a request that is sent again is
the same run. Ids of messages and calls begin with that of their run: what a client sends back can be told from what is
its own.
"""

from __future__ import annotations

from base64 import b32encode
from typing import Final, Literal, NamedTuple

from toolfleet.orchestrator.doors.http.idempotency import digest_of
from toolfleet.orchestrator.doors.openai.openai_records import run_of_handed_over

ID_CHARS: Final = 26
"""With what is written around it, the id of a call has at most the forty characters that providers take."""

THOUGHTS: Final = "-thoughts"
RESULT: Final = "-result"
CALL: Final = "call_"

MAX_NAME_CHARS: Final = 1000
"""How long a client's own ids may be."""


def run_id_of(prefix: str, tenant: str, subject: str, thread_id: str, run_id: str) -> str:
    """Return which run of ours a run of a client's thread is; `prefix` names the shard."""
    whose = (tenant, subject, thread_id, run_id)
    digest = digest_of(b"ag-ui", *(part.encode("utf-8", "surrogatepass") for part in whose))
    return prefix + b32encode(digest).decode().lower()[: ID_CHARS - len(prefix)]


def reply_id(run_id: str, turn: int, attempt: int = 0) -> str:
    """Return the id of what was said in a turn; a reply that is begun anew is another message."""
    return f"{run_id}-{turn}.{attempt}" if attempt else f"{run_id}-{turn}"


def is_of_run(run_id: str, message_id: str) -> bool:
    """Return whether a message is one that this run has told."""
    return message_id.startswith((f"{run_id}-", f"{CALL}{run_id}_"))


def run_of_message(message_id: str) -> str:
    """Return the run that may have told a message with this id; "" for an id that is none of ours."""
    if message_id.startswith(CALL):
        return run_of_handed_over(message_id.removesuffix(RESULT)) or ""
    return message_id.removesuffix(THOUGHTS).rpartition("-")[0]


class InterruptId(NamedTuple):
    """What a resume names: how far its client was told, and what it says something to."""

    told: int
    """The number of the last event before the interrupt: the next run goes on behind it."""
    kind: Literal["approval", "question"]
    name: str
    """The id of the call, or of the question."""
    digest: str = ""
    """Of the call as it was shown, for an approval."""

    def __str__(self) -> str:
        """Write it as clients have it."""
        return ":".join((str(self.told), self.kind, self.digest, self.name))

    @property
    def run_id(self) -> str:
        """The run that was interrupted: the outermost, where a call of an agent's run waits."""
        return self.name.split(".", 1)[0]

    @classmethod
    def read(cls, written: str) -> InterruptId | None:
        """Read one; None for what was never written here."""
        told, _, rest = written.partition(":")
        kind, _, rest = rest.partition(":")
        digest, _, name = rest.partition(":")
        if not (told.isascii() and told.isdigit() and len(told) <= 18 and name):
            return None
        match kind:
            case "approval" | "question":
                return cls(int(told), kind, name, digest)
            case _:
                return None
