"""Which version of a tool a run is offered, where several are live: the one that it began with, in each of its turns.

A run that says nothing of a tool began when that had no version: it goes on without one as long as that is served, and
then as with any release. Knows no model, and sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from toolfleet.calls import run_of
from toolfleet.catalog import version_unserved
from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import UnknownTool
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.tool import ToolSpec

log = FactLog("toolfleet.orchestrator")

NOTHING_PINNED: Final[Mapping[str, int]] = MappingProxyType({})


class VersionGone(UnknownTool):
    """No live worker serves the version of a tool that a run began with. It may be back in a moment."""

    def __init__(self, said: str, missing: tuple[str, int]) -> None:
        super().__init__(said)
        self.missing = missing


class PinnedVersions:
    """Decides by the live versions that the catalog has found last."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._given_up: set[tuple[str, int]] = set()
        """What was waited for in vain: nobody waits for it once more, in no turn of any run."""

    def at_start(self, names: Sequence[str] | None, tenant: str, above: Mapping[str, int], root: str) -> dict[str, int]:
        """Return the versions that a tenant's run with these tools, None for all, is to go on with: mostly none.

        A run below another one has the versions of that, and of its other tools the highest, or those that a share
        gives to the run that began the tree (`root`).
        """
        live = self._catalog.versions
        if not live and not above:
            return {}
        chosen = {name: specs[self._catalog.version_for(name, root)] for name, specs in live.items()}
        own = {name: spec.version for name, spec in chosen.items() if spec.version and spec.tenant in ("", tenant)}
        pins = {**own, **above}
        return pins if names is None else {name: pins[name] for name in names if name in pins}

    def of(
        self, served: Mapping[str, ToolSpec], pins: Mapping[str, int], *, is_awaited: bool = False
    ) -> Mapping[str, ToolSpec]:
        """Return these tools in a run's versions, without those whose version is gone.

        With `is_awaited`, raises VersionGone where that may be for a moment only.
        """
        live = self._catalog.versions
        if not live and not pins:
            return served
        chosen = dict(served)
        for name in served.keys() & (live.keys() | pins.keys()):
            specs, pin = live.get(name) or {served[name].version: served[name]}, pins.get(name, 0)
            if pin in specs:
                chosen[name] = specs[pin]
                self._given_up.discard((name, pin))
            elif pin:
                del chosen[name]
                if is_awaited and (name, pin) not in self._given_up:
                    raise VersionGone(version_unserved(name, pin, specs), (name, pin))
        return chosen

    def gone(self, pins: Mapping[str, int]) -> Mapping[str, str]:
        """Return what is said of each tool of which another version is live, but not this one."""
        live = ((name, pin, self._catalog.versions.get(name, {})) for name, pin in pins.items())
        return {name: version_unserved(name, pin, specs) for name, pin, specs in live if pin not in specs}

    def give_up(self, gone: VersionGone) -> None:
        """Wait no more for a version until it has been seen again."""
        self._given_up.add(gone.missing)
        tool, version = gone.missing
        log.warning("tool_version_gone", tool=tool, version=version, why=str(gone))


def root_of(run_id: str, depth: int) -> str:
    """Return the run that began the tree of a run with so many above it: the id of each is that of a call."""
    for _ in range(depth):
        run_id = run_of(run_id)
    return run_id
