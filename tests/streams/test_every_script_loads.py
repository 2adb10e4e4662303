"""A server takes every script that there is: one that it cannot compile would be found where it is first needed.

Lua allows a script 200 local names at once, which a library can use up for whoever is made of it.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.streams.harness import temporary_server
from toolfleet.scripts import manifest, wire_script

ROOT = Path(__file__).parents[2]
MADE = re.compile(r"^(\w+)(?:: Final(?:\[str\])?)? = lua\(", re.MULTILINE)


def of_our_own():
    """Each script that a module keeps, by where that is."""
    places = set()
    for part in ("toolfleet", "orchestrator", "workers"):
        for file in (ROOT / part).rglob("*.py"):
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            of_package = module if module.startswith("toolfleet") else f"toolfleet.{module}"
            places |= {f"{of_package}:{name}" for name in MADE.findall(file.read_text())}
    return sorted(places)


@pytest.fixture(scope="module")
def server():
    with temporary_server() as running:
        yield running


@pytest.mark.parametrize("name", sorted(manifest()["scripts"]))
def test_a_server_takes_the_script_of_the_contract(server, name):
    assert server.client.script_load(wire_script(name))


@pytest.mark.parametrize("place", of_our_own())
def test_a_server_takes_the_script_of_our_own(server, place):
    module, _, name = place.partition(":")
    assert server.client.script_load(getattr(importlib.import_module(module), name))
