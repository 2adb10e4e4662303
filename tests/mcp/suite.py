"""The protocol's own conformance suite: its scenarios, and what came of each against a server."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.mcp.node import output_of, started

SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"

WITHIN_S = 240

_FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_GOOD = {"SUCCESS", "INFO"}


class Suite:
    """It in the folder where it is installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def scenarios(self, kind: str) -> list[str]:
        """The names of its scenarios for a `server`, a `client` or an `authorization` server."""
        said = output_of(started(self._folder, SUITE, "list", f"--{kind}"), within_s=30)
        return re.findall(r"^ +- (\S+)", said, re.MULTILINE)

    def complaints(self, url: str, runs: Iterable[tuple[str, ...]], out: Path) -> dict[str, list[str]]:
        """What is not as the suite wants it, by scenario; runs with these options go on at the same time.

        Every scenario that was tried is there; one without complaints has passed all its checks.
        """
        folders = [out / str(number) for number, _ in enumerate(runs)]
        processes = [
            started(self._folder, SUITE, "server", "--url", url, *options, "-o", str(folder))
            for options, folder in zip(runs, folders, strict=True)
        ]
        for process in processes:
            output_of(process, within_s=WITHIN_S)
        found: defaultdict[str, list[str]] = defaultdict(list)
        for checks in (path for folder in folders for path in folder.glob("*/checks.json")):
            scenario = _FOLDER.fullmatch(checks.parent.name)[1]
            found[scenario] += [
                f"{check['status']} {check['id']}: {check.get('errorMessage', '')}"
                for check in json.loads(checks.read_text())
                if check["status"] not in _GOOD
            ]
        return dict(found)
