"""The two tools by which a model reaches the resources of a server, as it is told of them. Data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class ResourceTool:
    """One of them."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    reads: bool
    """Whether it reads one, or lists them."""


_LISTING: Final = ResourceTool(
    name="list_resources",
    description="List what can be read of {server}: its resources by URI, and templates of URIs, whose braces you fill "
    "in. One page at a time; `next_page` of an answer is the page that follows.",
    input_schema={
        "type": "object",
        "properties": {
            "page": {"type": "string", "description": "`next_page` of the answer before; left out for the first page."}
        },
        "additionalProperties": False,
    },
    reads=False,
)

_READING: Final = ResourceTool(
    name="read_resource",
    description="Read a resource of {server} by its URI, as it is listed or fits one of the templates.",
    input_schema={
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "The URI, with nothing left in braces."}},
        "required": ["uri"],
        "additionalProperties": False,
    },
    reads=True,
)

RESOURCE_TOOLS: Final[Mapping[str, ResourceTool]] = MappingProxyType({each.name: each for each in (_LISTING, _READING)})
"""By name, without the server's prefix."""
