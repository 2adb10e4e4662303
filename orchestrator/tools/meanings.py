"""What the name of a tool means, in words for whoever has given one name to two things. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from toolfleet.catalog import BUILT_IN_NAMES
from toolfleet.errors import DuplicateTool

AGENT: Final = "an agent of this orchestrator"
BUILT_IN_TOOL: Final = "a built-in tool"
WORKERS_TOOL: Final = "a tool of the workers"


def of_interceptor(interceptor: object) -> str:
    """What a name means that an interceptor brings along."""
    return f"a tool that the interceptor {type(interceptor).__name__} brings"


def own_names_must_differ(agents: Iterable[str], brought: Mapping[str, str]) -> None:
    """Raises DuplicateTool where two of an orchestrator's own things answer to one name."""
    one_meaning_each(
        dict.fromkeys(BUILT_IN_NAMES, BUILT_IN_TOOL),
        dict.fromkeys(agents, AGENT),
        brought,
    )


def one_meaning_each(*sources: Mapping[str, str]) -> None:
    """Raises DuplicateTool for a name that two of these have; each says what the names in it mean."""
    meant: dict[str, str] = {}
    for source in sources:
        for name in sorted(source.keys() & meant.keys()):
            raise DuplicateTool(f"{name} means two things, {meant[name]} and {source[name]}: rename one of them")
        meant.update(source)
