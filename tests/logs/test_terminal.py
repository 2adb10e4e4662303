"""What strangers wrote is shown on a terminal, and obeyed by none."""

import json
import sys
from pathlib import Path

from hypothesis import given, strategies as st

from toolfleet.terminal import harmless, harmless_json

COMMANDS = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


@given(st.text())
def test_no_text_is_a_command(text):
    assert not set(harmless(text)) & (COMMANDS - {"\n", "\t"})


@given(st.dictionaries(st.text(), st.text()))
def test_json_says_the_same_and_holds_no_command(value):
    shown = harmless_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(shown) == value
    assert not set(shown) & (COMMANDS - {"\n"})


def test_what_is_meant_to_be_read_stays_as_it_is():
    text = "表示する 🧑\u200d🤝\u200d🧑 naïve\tcol\n"
    assert harmless(text) == text


def test_only_one_module_prints_json_for_programs():
    rooms = Path(sys.modules[harmless.__module__].__file__).parents[1] / "orchestrator" / "doors" / "cli"
    raw = [path.name for path in rooms.glob("*.py") if "stdout.write(orjson" in path.read_text()]
    assert raw == []
