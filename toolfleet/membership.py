"""Who of the fleet has another secret than this process: said at once, where one would wait for what nobody believes.

Pure. A worker throws away a call that it cannot believe, and nothing that it could answer would be believed either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def proofs_by_name(names: Sequence[str], shown: Sequence[bytes | None]) -> Proofs:
    """Return what these members show, of those that show something that can be read."""
    read = {name: read_proofs(proofs) for name, proofs in zip(names, shown, strict=True) if proofs is not None}
    return {name: proofs for name, proofs in read.items() if proofs}


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


def must_be_in_step(members: Proofs, seal: Seal) -> None:
    """Raises OtherSecret when somebody shares a secret with us, but one of the two would not believe the other.

    That is a change of the secret in which a step was left out: what the one has done, the other would throw away.
    """
    foreign = [name for name in strangers(members, seal) if not seal.trust(name, members[name]).is_none]
    if foreign:
        raise OtherSecret(
            f"{', '.join(foreign)}: one step of changing the secret behind or ahead of this process. All must accept "
            "the new one before anybody signs with it, and all must sign with it before the old one is dropped; "
            "`toolfleet secret` shows where each stands (who was killed counts for 30 s)"
        )


def next_step(members: Proofs, seal: Seal) -> str:
    """Return what a change of the secret needs next, as this process's own secrets tell it."""
    known = {name: seal.known_keys(name, proofs) for name, proofs in members.items()}
    if not known:
        return "no process is live"
    ours, *others = seal.key_ids()
    if behind := sorted(name for name, keys in known.items() if not {ours, *others} <= set(keys)):
        missing = "both secrets" if others else f"secret {ours}"
        return f"accept: not everybody has {missing}, so nobody may sign with a new one: restart {', '.join(behind)}"
    if not others:
        return f"all have secret {ours}. To change it: accept (the new one as TOOLFLEET_PREVIOUS_SECRET), sign, drop"
    if behind := sorted(name for name, keys in known.items() if keys[0] != ours):
        return f"sign: restart {', '.join(behind)} with {ours} as TOOLFLEET_SECRET and {others[0]} as the previous one"
    return (
        f"all sign with {ours} and accept {others[0]}. If {ours} is the old one, sign: exchange the two everywhere. If "
        f"it is the new one, drop {others[0]} everywhere when nothing is stored under it any more"
    )


def must_be_welcome(members: Proofs, seal: Seal) -> None:
    """Raises OtherSecret when a worker would join a fleet with which it has no secret in common.

    It would take the fleet's calls from the queues and throw them away. Nor when a step of a change is left out.
    """
    must_be_in_step(members, seal)
    foreign = sorted(name for name, proofs in members.items() if seal.trust(name, proofs).is_none)
    if foreign and len(foreign) == len(members):
        raise OtherSecret(complaint(foreign))
