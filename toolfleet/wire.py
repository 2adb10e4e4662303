"""What travels: signed JSON text, both ways. Nothing unsigned, altered or misdirected passes `open_call`.

HMAC-SHA256 (RFC 2104) over a purpose and the exact bytes, so that a result can never pass for a call. A field that a
record does not have is not looked at: only who has the secret can have written it, and a newer version of ours adds
what may be left out. What may not be left out is another version of the record (`v`), which is refused. This module
must not know Celery or Redis.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from toolfleet.calls import (
    TOOL_RESULT,
    Attempt,
    CallFrame,
    Failed,
    FailureKind,
    JobRecord,
    Progress,
    Returned,
    Submitted,
    ToolCall,
)
from toolfleet.errors import Refused
from toolfleet.settings import Settings
from toolfleet.trusted import counting_all_as_given
from toolfleet.wire_text import text_of_call, text_of_result

MAC_HEX_CHARS: Final = 64
KEY_ID_CHARS: Final = 8
_BLOCK_BYTES: Final = 64
UNKNOWN_KEY: Final = "?"
T = TypeVar("T")
_CALL, _RESULT, _PROGRESS = b"toolfleet.call\0", b"toolfleet.result\0", b"toolfleet.progress\0"
_JOB, _CHECKPOINT = b"toolfleet.job\0", b"toolfleet.checkpoint\0"
_CANCEL, _CANCEL_TEXT = b"toolfleet.cancel\0", b"{}"
_GRANT = b"toolfleet.artifact-grant\0"
_MEMBER = b"toolfleet.member\0"
_ANNOUNCEMENT = b"toolfleet.announcement\0"
AT_DIGITS: Final = 15
_ORDER = b"toolfleet.control\0"
_KEY_ID: Final = b"toolfleet.key-id\0"
_CALLBACK, _API_KEY = b"toolfleet.callback\0", b"toolfleet.api-key\0"
_READ_PROGRESS = partial(Progress.model_validate_json, extra="ignore")
_READ_JOB = partial(JobRecord.model_validate_json, extra="ignore")
_READ_FRAME = partial(CallFrame.model_validate_json, extra="ignore")
_RUN_ENTRY, _KEPT = b"toolfleet.run-entry\0", b"toolfleet.kept\0"
_count_returned, _count_attempt = counting_all_as_given(Returned), counting_all_as_given(Attempt)

_HIDDEN: Final = b"toolfleet.hidden\0"
_NONCE_BYTES: Final = 16
HIDDEN_BYTES: Final = 32


class Unread(Refused):
    """One of ours has sealed it, and in a shape that is not read here: a newer version's."""


class OtherVersion(Refused):
    """A call that one of ours has signed, in a version that is not read here: another worker's, and no dead letter."""

    def __init__(self, frame: CallFrame) -> None:
        super().__init__(f"a call of version {frame.v}, which is not read here")
        self.frame = frame


class Trust(NamedTuple):
    """Whether we would accept what another signs, and whether it would accept what we sign."""

    believes: bool
    is_believed: bool

    @property
    def is_mutual(self) -> bool:
        """Whether a call would be run, and its result be believed."""
        return self.believes and self.is_believed

    @property
    def is_none(self) -> bool:
        """Whether the two have no secret in common; in the midst of a change there may be trust in one direction."""
        return not (self.believes or self.is_believed)


class Mac:
    """HMAC-SHA256 (RFC 2104) with one key, whose two pads are hashed once: a text costs half of what `hmac` takes."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (hashlib.sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def of(self, purpose: bytes, text: bytes) -> str:
        """Return the MAC of a purpose and the text behind it, in hex."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(purpose)
        inner.update(text)
        outer.update(inner.digest())
        return outer.hexdigest()


class Seal:
    """Signs with the secret and accepts that of the previous one too, so that secrets can be rotated.

    Without a secret (a local fleet whose Redis only this machine reaches) the key is empty: texts are still bound to
    their purpose and checked for damage.
    """

    def __init__(self, settings: Settings) -> None:
        self._macs = [Mac(key.encode()) for key in settings.signing_secrets]
        self._max_bytes = settings.max_message_bytes

    def close_call(self, call: ToolCall) -> tuple[str, str]:
        """The call as JSON text, and its MAC. Raises Refused when it has none, or is larger than a worker accepts."""
        try:
            data = text_of_call(call)
        except PydanticSerializationError as error:
            raise Refused(f"the call has no JSON form: {error}") from None
        text = data.decode()
        if len(text) > self._max_bytes:
            raise Refused(f"the call is larger than max_message_bytes ({self._max_bytes})")
        return text, self._sign(_CALL, data)

    def open_call(self, text: object, mac: object) -> ToolCall:
        """Return the call in a signed text. Raises Refused with the reason: OtherVersion where others can read it."""
        if not isinstance(text, str) or not isinstance(mac, str):
            raise Refused("not an envelope")
        if len(text) > self._max_bytes:
            raise Refused("too large")
        self._check(_CALL, text.encode(), mac)
        try:
            return ToolCall.__pydantic_validator__.validate_json(text, extra="ignore")  # type: ignore[no-any-return]  # its own
        except ValidationError:
            raise _unread(text) from None

    def close_result(self, result: Returned | Failed | Submitted, call_id: str, attempt: bytes | None = None) -> bytes:
        """Return the result of a call as bytes for Redis: MAC, then JSON. The MAC covers the call id too.

        With `attempt`, the JSON of an `Attempt`, a result that names none yet says that it comes from this one.
        """
        text = text_of_result(result)
        if attempt is not None:
            # Into the text: to copy a frozen record for one field more costs more than to sign it.
            text = b'%b,"attempt":%b}' % (text[:-1], attempt)
        return self._sign(_RESULT + call_id.encode() + b"\0", text).encode() + text

    def open_result(self, sealed: bytes, call_id: str) -> Returned | Failed | Submitted:
        """Return the result in sealed bytes. Raises Refused when it is not the fleet's, or not this call's."""
        return self._open(sealed, _RESULT + call_id.encode() + b"\0", _read_result)

    def close_progress(self, progress: Progress, call_id: str) -> bytes:
        """Progress of a call as bytes for Redis, sealed like a result."""
        text = progress.__pydantic_serializer__.to_json(progress)
        return self._sign(_PROGRESS + call_id.encode() + b"\0", text).encode() + text

    def open_progress(self, sealed: bytes, call_id: str) -> Progress:
        """Return the progress in sealed bytes. Raises Refused."""
        return self._open(sealed, _PROGRESS + call_id.encode() + b"\0", _READ_PROGRESS)

    def close_job(self, job: JobRecord, call_id: str) -> bytes:
        """Return the job that a call waits for as bytes for Redis, sealed like a result."""
        text = job.model_dump_json().encode()
        return self._sign(_JOB + call_id.encode() + b"\0", text).encode() + text

    def open_job(self, sealed: bytes, call_id: str) -> JobRecord:
        """Return the job in sealed bytes. Raises Refused."""
        return self._open(sealed, _JOB + call_id.encode() + b"\0", _READ_JOB)

    def close_checkpoint(self, text: bytes, call_id: str) -> bytes:
        """Return a checkpoint, already JSON, as bytes for Redis, sealed like a result."""
        return self._sign(_CHECKPOINT + call_id.encode() + b"\0", text).encode() + text

    def open_checkpoint(self, sealed: bytes, call_id: str) -> Any:
        """Return the data of a checkpoint in sealed bytes. Raises Refused."""
        return self._open(sealed, _CHECKPOINT + call_id.encode() + b"\0", from_json)

    def close_cancel(self, call_id: str) -> bytes:
        """Return the mark that a call is cancelled as bytes for Redis, sealed like a result."""
        return self._sign(_CANCEL + call_id.encode() + b"\0", _CANCEL_TEXT).encode() + _CANCEL_TEXT

    def open_cancel(self, sealed: bytes, call_id: str) -> bytes:
        """Return what a mark says, in which there is nothing yet. Raises Refused."""
        return self._open(sealed, _CANCEL + call_id.encode() + b"\0", bytes)

    def believes_cancel(self, mark: bytes, call_id: str) -> bool:
        """Whether the fleet has marked just this call as cancelled."""
        try:
            self.open_cancel(mark, call_id)
        except Refused:
            return False
        return True

    def sign_order(self, text: str) -> str:
        """Return what makes a worker obey a control command in JSON."""
        return self._sign(_ORDER, text.encode())

    def open_order(self, text: object, mac: object) -> str:
        """Return the text of a control command that one of ours has signed. Raises Refused."""
        if not isinstance(text, str) or not isinstance(mac, str):
            raise Refused("a signed control command has no text")
        self._check(_ORDER, text.encode(), mac)
        return text

    def sign_callback(self, call_id: str, expires_unix_s: int) -> str:
        """Return what proves to the API that the fleet itself gave out this callback."""
        return self._sign(_CALLBACK + call_id.encode() + b"\0", str(expires_unix_s).encode())

    def check_callback(self, call_id: str, expires_unix_s: int, mac: str) -> None:
        """Raises Refused for a callback that the fleet did not give out. Whether it has expired, the caller sees."""
        self._check(_CALLBACK + call_id.encode() + b"\0", str(expires_unix_s).encode(), mac)

    def close_api_key(self, text: bytes, digest: str) -> bytes:
        """What an API key allows as bytes for Redis, sealed like a result: who can only write to Redis makes none."""
        return self._sign(_API_KEY + digest.encode() + b"\0", text).encode() + text

    def open_api_key(self, sealed: bytes, digest: str) -> Any:
        """Return what an API key allows, as JSON values. Raises Refused."""
        return self._open(sealed, _API_KEY + digest.encode() + b"\0", from_json)

    def proofs(self, member: str) -> tuple[str, ...]:
        """Return what shows others that this member of the fleet has their secret: with the one it signs with first.

        Bound to the member, so that nothing can be prepared or compared; whoever reads them could read a signed call.
        """
        return tuple(mac.of(_MEMBER, member.encode()) for mac in self._macs)

    def key_ids(self) -> tuple[str, ...]:
        """Return a short name of each secret, that with which it signs first: fit to be shown, and not the secret."""
        return tuple(mac.of(_KEY_ID, b"")[:KEY_ID_CHARS] for mac in self._macs)

    def known_keys(self, member: str, proofs: Sequence[str]) -> tuple[str, ...]:
        """Return by its name, or as "?", each secret that a member shows, that with which it signs first."""
        own = dict(zip(self.proofs(member), self.key_ids(), strict=True))
        return tuple(own.get(proof, UNKNOWN_KEY) for proof in proofs)

    def trust(self, member: str, proofs: Sequence[str]) -> Trust:
        """Which way calls and results could pass between us and the member that shows these proofs."""
        own = self.proofs(member)
        return Trust(believes=_is_among(proofs[:1], own), is_believed=_is_among(own[:1], proofs))

    def close_announcement(self, text: bytes, worker: str, at_ms: int) -> bytes:
        """Return what a worker announces as bytes for Redis: sealed for this name, and for this moment."""
        said = b"%0*d" % (AT_DIGITS, at_ms) + text
        return self._sign(_ANNOUNCEMENT + worker.encode() + b"\0", said).encode() + said

    def open_announcement(self, sealed: bytes, worker: str) -> tuple[int, bytes]:
        """Return when (ms, by the server's clock) and what a worker has announced. Raises Refused."""
        said = self._open(sealed, _ANNOUNCEMENT + worker.encode() + b"\0", bytes)
        return int(said[:AT_DIGITS]), said[AT_DIGITS:]

    def close_grant(self, text: bytes, run_id: str, artifact: str) -> bytes:
        """Return what a run may know of an artifact as bytes for Redis, sealed like a result, for this run only."""
        return self._sign(_GRANT + f"{run_id}\0{artifact}\0".encode(), text).encode() + text

    def open_grant(self, sealed: bytes, run_id: str, artifact: str) -> bytes:
        """Return the same in sealed bytes. Raises Refused."""
        return self._open(sealed, _GRANT + f"{run_id}\0{artifact}\0".encode(), bytes)

    def sign_entry(self, run_id: str, position: int, digest: bytes) -> str:
        """Return the seal of a run's entry at this place: `digest` stands for it and all entries before it."""
        return self._sign(_entry_of(run_id, position), digest)

    def believes_entry(self, run_id: str, position: int, digest: bytes, mac: str) -> bool:
        """Whether the fleet has sealed just this history of this run, up to this place."""
        return self._holds(_entry_of(run_id, position), digest, mac)

    def close_kept(self, text: bytes, key: str) -> bytes:
        """What orchestrators keep for themselves under a key of Redis, sealed like a result, for that key only."""
        return self._sign(_KEPT + key.encode() + b"\0", text).encode() + text

    def open_kept(self, sealed: bytes, key: str) -> bytes:
        """Return the same in sealed bytes. Raises Refused."""
        return self._open(sealed, _KEPT + key.encode() + b"\0", bytes)

    def hide(self, secret: bytes, key: str) -> bytes:
        """Return a secret as bytes for Redis that say nothing but its length to whoever has no more, for that key only.

        They are the exclusive or with HMACs of a nonce that is used for nothing else, and sealed.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return self.close_kept(nonce + _pad(self._macs[0], key, nonce, secret), key)

    def reveal(self, hidden: bytes, key: str) -> bytes:
        """Return the same in hidden bytes. Raises Refused."""
        mac, text = hidden[:MAC_HEX_CHARS].decode("latin-1"), hidden[MAC_HEX_CHARS:]
        self._check(_KEPT + key.encode() + b"\0", text, mac)
        [own] = [each for each in self._macs if each.of(_KEPT + key.encode() + b"\0", text) == mac][:1]
        return _pad(own, key, text[:_NONCE_BYTES], text[_NONCE_BYTES:])

    def _open(self, sealed: bytes, purpose: bytes, parse: Callable[[bytes], T]) -> T:
        text = sealed[MAC_HEX_CHARS:]
        self._check(purpose, text, sealed[:MAC_HEX_CHARS].decode("latin-1"))
        try:
            return parse(text)
        except ValidationError:
            raise Unread("wrong version or shape") from None

    def _check(self, purpose: bytes, text: bytes, mac: str) -> None:
        if not self._holds(purpose, text, mac):
            raise Refused("unsigned or altered")

    def _holds(self, purpose: bytes, text: bytes, mac: str) -> bool:
        if not mac.isascii():  # none of ours is, and they cannot be compared
            return False
        for own in self._macs:  # noqa: SIM110  # for each call and each result: `any` costs half of a MAC
            if hmac.compare_digest(own.of(purpose, text), mac):
                return True
        return False

    def _sign(self, purpose: bytes, text: bytes) -> str:
        return self._macs[0].of(purpose, text)


def _unread(text: str) -> Refused:
    """Why a signed text is no call that is read here."""
    try:
        return OtherVersion(_READ_FRAME(text))
    except ValidationError:
        return Refused("wrong version or shape")


def _read_result(text: bytes) -> Returned | Failed | Submitted:
    try:
        # Without the way through Python that pydantic's adapter takes.
        result: Returned | Failed | Submitted = TOOL_RESULT.validator.validate_json(text, extra="ignore")
    except ValidationError:
        if (failed := _of_newer_kind(text)) is None:
            raise
        return failed
    if type(result) is Returned:  # the results of a group are kept until its last one is here
        _count_returned(result)
        if result.attempt is not None:
            _count_attempt(result.attempt)
    return result


def _of_newer_kind(text: bytes) -> Failed | None:
    """The failure in a text, as an error, whose kind a newer version knows; None for anything else."""
    try:
        record = from_json(text)
        kind = record["kind"]
        if record["type"] != "failed" or not isinstance(kind, str) or kind in set(FailureKind):
            return None
        return Failed.model_validate({**record, "kind": FailureKind.ERROR}, extra="ignore")
    except (ValueError, KeyError, TypeError):
        return None


def _entry_of(run_id: str, position: int) -> bytes:
    return _RUN_ENTRY + f"{run_id}\0{position}\0".encode()


def _pad(mac: Mac, key: str, nonce: bytes, text: bytes) -> bytes:
    """Return a text hidden, or the hidden one as it was: each HIDDEN_BYTES of it by an HMAC of their own."""
    purpose = _HIDDEN + key.encode() + b"\0"
    # The first is of the nonce alone. No two are of the same bytes: nonces are all as long.
    blocks = range(-(-len(text) // HIDDEN_BYTES))
    pad = "".join(mac.of(purpose, nonce + (at.to_bytes(4, "big") if at else b"")) for at in blocks)
    return bytes(one ^ other for one, other in zip(text, bytes.fromhex(pad), strict=False))


def _is_among(first: Sequence[str], proofs: Sequence[str]) -> bool:
    return any(hmac.compare_digest(each.encode(), proof.encode()) for each in first for proof in proofs)
