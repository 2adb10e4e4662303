"""A fleet behind `toolfleet serve`, whose model does what a question spells out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.http.serving import Served, serving
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.models import REHEARSAL_MODEL


@dataclass(frozen=True)
class Place:
    """Where clients are sent, and with which key."""

    served: Served

    def as_environment(self) -> dict[str, str]:
        """The variables that clients of OpenAI's read, and the model's name."""
        return {
            "OPENAI_BASE_URL": f"{self.served.url}/v1",
            "OPENAI_API_KEY": self.served.key,
            "MODEL": REHEARSAL_MODEL,
        }


@contextmanager
def fleet_behind_http(folder: Path) -> Iterator[Place]:
    """Workers and the API, each a process of its own."""
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    with (
        LocalFleet(["client_tools"], pools={"io": 1}, environment=here) as fleet,
        serving(fleet.settings, folder) as served,
    ):
        yield Place(served)
