"""The fleet's tools as that API has an agent's custom tools declared. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from toolfleet.orchestrator.models.names import legal_name
from toolfleet.read_result import READ_RESULT
from toolfleet.tool import ToolSpec


def definitions(served: Mapping[str, ToolSpec], only: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return those named, or all, and with them the tool that reads on in large results."""
    chosen = [spec for name, spec in sorted(served.items()) if not only or name in only]
    return [_definition(spec) for spec in (*chosen, READ_RESULT)]


def _definition(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "custom",
        "name": legal_name(spec.name),
        "description": spec.description or spec.name,
        "input_schema": {"type": "object", **spec.input_schema},
    }
