import re

from hypothesis import given, strategies as st

from toolfleet.orchestrator.models.names import NameMap, legal_id, legal_name

LEGAL_EVERYWHERE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def test_a_legal_name_stays_as_it_is():
    assert legal_name("get_weather-2") == "get_weather-2"


@given(st.text(max_size=200))
def test_S7_any_name_becomes_one_that_every_provider_accepts(name):
    assert LEGAL_EVERYWHERE.fullmatch(legal_name(name))


@given(st.lists(st.text(max_size=80), unique=True, max_size=20))
def test_S7_every_name_comes_back_from_the_wire(names):
    mapped = NameMap(names)
    assert [mapped.to_catalog(legal_name(name)) for name in names] == names


def test_S7_names_that_look_alike_without_their_illegal_characters_stay_apart():
    assert len({legal_name(name) for name in ("get weather", "get.weather", "get/weather", "get_weather")}) == 4


def test_a_long_name_keeps_its_tail():
    assert "delete_everything" in legal_name("a_server_with_a_name_without_end." * 3 + "delete_everything")


def test_a_name_that_was_never_offered_comes_back_unchanged():
    assert NameMap(["add"]).to_catalog("subtract") == "subtract"


def test_an_id_of_another_provider_becomes_a_legal_one_and_always_the_same():
    legal = re.compile(r"[A-Za-z0-9_-]{1,40}")
    assert legal_id("functions.add:0", legal) == legal_id("functions.add:0", legal)
    assert legal.fullmatch(legal_id("functions.add:0", legal))
    assert legal_id("call_1", legal) == "call_1"
