"""The worker in TypeScript answers the published vectors as the contract says."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.clients.environments import NODE
from tests.workers_ts.built import CONTRACT, built

VECTORS = CONTRACT / "vectors"


def vectors(name: str) -> list[dict[str, Any]]:
    return json.loads((VECTORS / name).read_text())["vectors"]


def test_X1_the_worker_in_typescript_agrees_on_all_vectors():
    command = [str(NODE), str(built() / "tools" / "vectors.ts"), str(VECTORS)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert said["signatures.json"] == [each["mac"] for each in vectors("signatures.json")]
    for name in ("calls.json", "deliveries.json"):
        named = {each["name"]: answer for each, answer in zip(vectors(name), said[name], strict=True)}
        assert named == {each["name"]: each["answer"] for each in vectors(name)}
    is_sealed = [each["answer"].get("reason") != "signature" for each in vectors("records.json")]
    assert said["records.json"] == is_sealed
    assert said["exact"] == "9007199254740993"
