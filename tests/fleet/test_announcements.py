"""What a worker announces is believed for its name and its moment, and only if somebody with the secret has said it."""

from __future__ import annotations

import time

import pytest
from pydantic import SecretStr

from toolfleet.catalog import Announcement, Believer
from toolfleet.keys import ANNOUNCEMENT_TTL_S
from toolfleet.settings import Settings
from toolfleet.skipped import skipped
from toolfleet.tool import tool
from toolfleet.wire import Seal

NOW_S = int(time.time())
SEAL = Seal(Settings(redis_url="redis://127.0.0.1", secret=SecretStr("ours-and-long-enough")))
OTHER = Seal(Settings(redis_url="redis://127.0.0.1", secret=SecretStr("another-one-of-theirs")))


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return str(amount)


def announcement(name="io@host", approval=True):
    spec = pay.spec.model_copy(update={"requires_approval": approval})
    return Announcement(
        worker=name, pid=1, pool="io", concurrency=1, queues=("io",), started_unix_s=1.0, tools=(spec,), proofs=("x",)
    )


def sealed(announced, at_s=NOW_S, *, seal=SEAL, name=None, extra=""):
    text = announced.model_dump_json().encode()
    text = text[:-1] + extra.encode() + b"}" if extra else text
    return seal.close_announcement(text, name or announced.worker, at_s * 1000)


def approvals(live):
    return {each.worker: each.tools[0].requires_approval for each in live.ours}


def test_what_is_sealed_is_believed_and_one_field_more_is_not_looked_at():
    found = {b"io@host": sealed(announcement(), extra=',"of_a_newer_version":{"x":[1]}')}
    live = Believer(SEAL).live(found, NOW_S)
    assert approvals(live) == {"io@host": True}
    assert live.others == {}


FORGED = {
    "without a seal": announcement(approval=False).model_dump_json().encode(),
    "under another secret": sealed(announcement(approval=False), seal=OTHER),
    "another worker's": sealed(announcement("evil@host", approval=False)),
    "altered": sealed(announcement()).replace(b'"requires_approval":true', b'"requires_approval":false'),
    "not UTF-8": b"\xff" * 500,
    "not JSON": SEAL.close_announcement(b"{", "io@host", NOW_S * 1000),
    "no announcement": SEAL.close_announcement(b"[]", "io@host", NOW_S * 1000),
    "empty but for its seal": SEAL.close_announcement(b"", "io@host", NOW_S * 1000),
    "an error in its place": ValueError("WRONGTYPE"),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_one_says_nothing_of_a_tool_and_takes_away_nothing_that_was_believed(forged):
    before = skipped().get("announcement", 0)
    assert approvals(Believer(SEAL).live({b"io@host": forged}, NOW_S)) == {}
    believer = Believer(SEAL)
    believer.live({b"io@host": sealed(announcement())}, NOW_S)
    assert approvals(believer.live({b"io@host": forged}, NOW_S + 1)) == {"io@host": True}
    assert approvals(believer.live({b"io@host": forged}, NOW_S + ANNOUNCEMENT_TTL_S + 2)) == {}
    assert skipped()["announcement"] > before


def test_who_has_another_secret_is_named_as_somebody_else():
    live = Believer(SEAL).live({b"io@host": sealed(announcement(), seal=OTHER)}, NOW_S)
    assert live.ours == []
    assert live.others == {"io@host": ("x",)}


def test_an_older_announcement_does_not_come_back():
    older, newer = sealed(announcement(approval=False)), sealed(announcement(approval=True), NOW_S + 5)
    believer = Believer(SEAL)
    assert approvals(believer.live({b"io@host": newer}, NOW_S + 5)) == {"io@host": True}
    assert approvals(believer.live({b"io@host": older}, NOW_S + 6)) == {"io@host": True}
    # Nor once the worker is gone, nor for a reader that has only begun, once it is older than announcements hold.
    assert approvals(believer.live({}, NOW_S + 7)) == {}
    assert approvals(believer.live({b"io@host": older}, NOW_S + 8)) == {"io@host": True}
    assert approvals(Believer(SEAL).live({b"io@host": older}, NOW_S + ANNOUNCEMENT_TTL_S + 2)) == {}


def test_a_server_whose_clock_was_set_back_does_not_silence_a_worker():
    believer = Believer(SEAL)
    believer.live({b"io@host": sealed(announcement(), NOW_S + 3600)}, NOW_S + 3600)
    assert approvals(believer.live({b"io@host": sealed(announcement(approval=False))}, NOW_S)) == {"io@host": False}


def test_names_that_are_no_text_are_only_names():
    assert Believer(SEAL).live({b"\xff\xfe": b"junk", b"io@host": sealed(announcement())}, NOW_S).ours
