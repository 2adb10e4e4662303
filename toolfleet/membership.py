"""Who of the fleet has another secret than this process: said at once, where one would wait for what nobody believes.

Pure. A worker throws away a call that it cannot believe, and nothing that it could answer would be believed either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from toolfleet.errors import OtherSecret
from toolfleet.wire import Seal

Proofs = Mapping[str, tuple[str, ...]]
"""What each live member of the fleet shows of its secret, by the member's name; see `Seal.proofs`."""

REMEDY: Final = (
    "set the same one everywhere, or to change it without an outage first announce the new one as "
    "TOOLFLEET_PREVIOUS_SECRET (deploy/README.md, Secrets)"
)


MAX_PROOFS_BYTES: Final = 4096


def read_proofs(text: bytes) -> tuple[str, ...]:
    """Return what an orchestrator shows of its secret, from JSON that anybody may have written; () for what is none."""
    try:
        proofs = orjson.loads(text[:MAX_PROOFS_BYTES])
    except orjson.JSONDecodeError:
        return ()
    if not isinstance(proofs, list) or not all(isinstance(proof, str) for proof in proofs):
        return ()
    return tuple(proofs)


def strangers(members: Proofs, seal: Seal) -> list[str]:
    """Return those that would not run our calls, or whose results we would not believe."""
    return sorted(name for name, proofs in members.items() if not seal.trust(name, proofs).is_mutual)


def complaint(names: Iterable[str]) -> str:
    """Return what is said of strangers."""
    *most, last = names
    who = f"{', '.join(most)} and {last} use" if most else f"{last} uses"
    return f"{who} another TOOLFLEET_SECRET than this process: {REMEDY}"


def must_be_ours(workers: Proofs, seal: Seal) -> list[str]:
    """Return the strangers among the live workers. Raises OtherSecret when there is nobody else."""
    names = strangers(workers, seal)
    if names and len(names) == len(workers):
        raise OtherSecret(complaint(names))
    return names


def must_be_welcome(members: Proofs, seal: Seal) -> None:
    """Raises OtherSecret when a worker would join a fleet with which it has no secret in common.

    It would take the fleet's calls from the queues and throw them away. In the midst of a change, when only one of two
    accepts the other, it may join: the others are about to be started again.
    """
    foreign = sorted(name for name, proofs in members.items() if seal.trust(name, proofs).is_none)
    if foreign and len(foreign) == len(members):
        raise OtherSecret(complaint(foreign))
