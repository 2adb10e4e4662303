"""Exported runs in your own tests: what comes out differently with the tools and the code that you have now."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.replay.export import read_exports
from toolfleet.orchestrator.replay.replaying import Replayed, replay
from toolfleet.settings import new_secret, read_settings
from toolfleet.tool import Tool


async def replayed(
    path: str | Path, *, tools: Iterable[Tool[..., Any]] = (), orchestrator: Orchestrator | None = None
) -> list[Replayed]:
    """Replay each run of a file of `toolfleet runs export`, offline; look at `is_same` and `differences`.

    `tools` as they are declared now stand in the place of those exported under their names; the interceptors and
    policies of an `orchestrator`, which need not be open, are asked about each call. Raises ExportUnreadable.
    """
    settings = read_settings(secret=new_secret())
    specs = {tool.spec.name: tool.spec for tool in tools}
    code = None if orchestrator is None else orchestrator.code
    return [await replay(export, settings, tools=specs, code=code) for export in read_exports([Path(path)])]
