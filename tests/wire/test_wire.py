import hmac

import pytest
from hypothesis import given, strategies as st

from toolfleet.calls import Failed, FailureKind, Progress, Returned, ToolCall
from toolfleet.errors import Refused
from toolfleet.settings import Settings
from toolfleet.wire import MAC_HEX_CHARS, Mac, Seal

OLD, NEW = "an-old-secret-of-the-fleet", "a-new-secret-of-the-fleet"


def seal(secret: str = NEW, previous: str = "", **settings) -> Seal:
    return Seal(Settings(redis_url="redis://127.0.0.1", secret=secret, previous_secret=previous, **settings))


def call(**fields) -> ToolCall:
    return ToolCall(
        **{"call_id": "r.1.0", "run_id": "r", "tool": "t", "arguments": "{}", "deadline_unix_s": 2e9, "reply_to": "o"}
        | fields
    )


def test_a_call_comes_out_as_it_went_in():
    assert seal().open_call(*seal().close_call(call(arguments='{"x": "☃"}'))) == call(arguments='{"x": "☃"}')


def test_a_call_signed_with_the_previous_secret_is_still_opened():
    assert seal(NEW, previous=OLD).open_call(*seal(OLD).close_call(call())) == call()


def test_a_call_signed_with_a_secret_long_gone_is_refused():
    with pytest.raises(Refused, match="unsigned or altered"):
        seal(NEW).open_call(*seal(OLD).close_call(call()))


@pytest.mark.parametrize(
    ("field", "forged"),
    [("call_id", "r.1.1"), ("tool", "rm"), ("arguments", "{ }"), ("attempt", 2), ("deadline_unix_s", 3e9)],
)
def test_every_field_is_covered_by_the_mac(field, forged):
    _, mac = seal().close_call(call())
    text, _ = seal().close_call(call(**{field: forged}))
    with pytest.raises(Refused, match="unsigned or altered"):
        seal().open_call(text, mac)


@pytest.mark.parametrize(("text", "mac"), [(5, "x"), (None, None), ("{}", None), ({}, []), ("{}", "☃" * 64)])
def test_what_is_no_envelope_is_refused(text, mac):
    with pytest.raises(Refused):
        seal().open_call(text, mac)


def test_a_signed_call_of_another_version_is_refused():
    text, _ = seal().close_call(call())
    newer = text.replace('"v":1', '"v":2')
    mac = seal()._sign(b"toolfleet.call\0", newer.encode())
    with pytest.raises(Refused, match="version 2"):
        seal().open_call(newer, mac)


def test_a_call_too_large_is_refused_by_sender_and_worker():
    large = call(arguments="x" * 2000)
    with pytest.raises(Refused, match="max_message_bytes"):
        seal(max_message_bytes=1024).close_call(large)
    with pytest.raises(Refused, match="too large"):
        seal(max_message_bytes=1024).open_call(*seal().close_call(large))


def test_a_result_is_bound_to_its_call():
    sealed = seal().close_result(Returned(content="secret of r.1.0"), "r.1.0")
    assert seal().open_result(sealed, "r.1.0") == Returned(content="secret of r.1.0")
    with pytest.raises(Refused):
        seal().open_result(sealed, "r.1.1")


def test_progress_does_not_pass_for_a_result():
    sealed = seal().close_progress(Progress(fraction=0.5), "r.1.0")
    with pytest.raises(Refused):
        seal().open_result(sealed, "r.1.0")


@given(st.binary(max_size=200))
def test_random_bytes_are_never_a_result(noise):
    with pytest.raises(Refused):
        seal().open_result(noise, "r.1.0")


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_one_flipped_bit_anywhere_is_noticed(position, bit):
    sealed = bytearray(seal().close_result(Failed(kind=FailureKind.ERROR, message="no"), "r.1.0"))
    sealed[position % len(sealed)] ^= 1 << bit
    with pytest.raises(Refused):
        seal().open_result(bytes(sealed), "r.1.0")


def test_a_mac_is_in_front_of_every_result():
    sealed = seal().close_result(Returned(content="x"), "r.1.0")
    assert sealed[MAC_HEX_CHARS:].startswith(b'{"type":"returned"')


@given(key=st.binary(max_size=200), purpose=st.binary(max_size=70), text=st.binary(max_size=300))
def test_a_mac_is_the_hmac_of_the_standard_library(key, purpose, text):
    mac = Mac(key)
    expected = hmac.new(key, purpose + text, "sha256").hexdigest()
    # Twice: what was signed before leaves nothing behind.
    assert (mac.of(purpose, text), mac.of(purpose, text)) == (expected, expected)


@given(mac=st.text(max_size=70))
def test_a_mac_of_any_characters_is_refused_and_raises_nothing_else(mac):
    text, _ = seal().close_call(call())
    with pytest.raises(Refused, match="unsigned or altered"):
        seal().open_call(text, mac)


@given(head=st.binary(min_size=MAC_HEX_CHARS, max_size=MAC_HEX_CHARS))
def test_a_result_behind_any_bytes_for_a_mac_is_refused(head):
    sealed = seal().close_result(Returned(content="1"), "r.1.0")
    with pytest.raises(Refused, match="unsigned or altered"):
        seal().open_result(head + sealed[MAC_HEX_CHARS:], "r.1.0")
