"""Long texts in portions: nothing lost, nothing twice, nothing above its limit."""

import re

import pytest
from hypothesis import example, given, strategies as st

from toolfleet.paging import WINDOW_CHARS, found, page, places, preview

ARTIFACT = "a" * 64


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.integers(1, 30))
def test_R6_pages_put_together_are_the_text(text, limit):
    read, offset = "", 0
    while offset < len(text):
        shown = page(text, offset, limit)
        body, _, note = shown.rpartition("\n[characters ")
        read += body
        following = re.search(r"the next begin at offset=(\d+)\]$", note)
        offset = int(following[1]) if following else len(text)
    assert read == text


def test_R6_a_page_beyond_the_end_says_how_long_the_text_is():
    assert page("abc", 3, 10) == "[there is nothing at offset 3: the result has 3 characters]"


@pytest.mark.parametrize("character", ["x", "é", "☃", "🦀"])
@pytest.mark.parametrize("max_bytes", [1024, 8192, 1_000_000])
def test_R6_a_preview_has_both_ends_and_fits(character, max_bytes):
    text = f"BEGIN{character * 300_000}END"
    shown = preview(text, ARTIFACT, max_bytes)
    head, rest = shown.split("\n[… ")
    left_out = int(rest.split()[0])
    tail = rest.split("left out …]\n")[1].split("\n[the whole")[0]
    assert len(shown.encode()) <= max_bytes
    assert head.startswith("BEGIN")
    assert tail.endswith("END")
    assert len(head) + left_out + len(tail) == len(text)
    assert f'read_result(artifact="{ARTIFACT}"' in shown


def all_places(text, searched, offset=0):
    return [place for window in places(text, searched, offset) for place in window]


@given(st.text("ab", max_size=60), st.text("abAB", min_size=1, max_size=4), st.integers(0, 60))
@example("aaaa", "aa", 1)
def test_R6_a_search_finds_what_a_plain_one_finds(text, searched, offset):
    expected = [m.span() for m in re.compile(re.escape(searched), re.IGNORECASE).finditer(text, min(offset, len(text)))]
    assert all_places(text, searched, offset) == expected


@pytest.mark.parametrize("shift", [0, 1, 3, 5, 6, 7])
def test_R6_what_lies_across_two_windows_is_found_once(shift):
    at = WINDOW_CHARS - shift
    text = "." * at + "Needle" + "." * WINDOW_CHARS + "needle"
    assert [place.start for place in all_places(text, "needle")] == [at, at + 6 + WINDOW_CHARS]


def test_R6_what_is_found_is_shown_with_what_surrounds_it():
    text = "x" * 500 + "needle" + "y" * 500
    shown = found(text, "needle", all_places(text, "needle"), more_at=None)
    assert shown == f"at 500: …{'x' * 100}needle{'y' * 100}…\n[1 place shown, no more]"
    assert found(text, "hay", [], None) == "['hay' was not found]"
