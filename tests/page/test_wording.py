"""JSON on many lines is the same JSON."""

from __future__ import annotations

import pytest

from toolfleet.orchestrator.doors.page.wording import indented

EXACT = '{"value":{"z":9007199254740993,"":"empty","a":0.10,"z2":1e400,"b":[]}}'


@pytest.mark.parametrize("text", [EXACT, "[]", "{}", '{"a":"{[,:]}\\""}', "[" * 500 + "]" * 500])
def test_W12_to_indent_json_changes_nothing_of_it(text):
    assert "".join(indented(text).split()) == "".join(text.split())


@pytest.mark.parametrize("text", ["", "no JSON", '{"a": [}', '"text"', '{"a": "b', "{}}", "x" * 1_000_000])
def test_W12_what_is_no_json_is_shown_as_it_is(text):
    assert "".join(indented(text).split()) == "".join(text.split())
