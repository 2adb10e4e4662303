"""Arguments that the model is asked for with every call, for those who read the run, and that no tool gets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolfleet.errors import InvalidTool
from toolfleet.misspelt import exact
from toolfleet.orchestrator.tools.interceptors import Interceptor, RequestedToolCall, Result

WHY: Final = "Why you make this call: what you want to find out or do with it, in one sentence."


@exact()
class ExtraArguments(Interceptor):
    """Asks the model for more arguments of every tool: the schema or a description of each; `why` where none is named.

    They stand in the run's history as the model gave them, and are taken out before a call is signed. A tool that has
    an argument of that name keeps its own and gets none besides. `on_call` hears of each call, with what was given; of
    one that is sent again after a crash, again.
    """

    def __init__(
        self,
        arguments: Mapping[str, str | Mapping[str, Any]] | None = None,
        *,
        on_call: Callable[[RequestedToolCall, Mapping[str, Any]], None] | None = None,
    ) -> None:
        asked = {"why": WHY} if arguments is None else arguments
        if not asked:
            raise InvalidTool("ExtraArguments: name at least one argument")
        self.adds = {
            name: {"type": "string", "description": each} if isinstance(each, str) else dict(each)
            for name, each in asked.items()
        }
        self._on_call = on_call

    async def before(self, call: RequestedToolCall) -> RequestedToolCall | Result:
        """The call as it is: what the model gave is taken out when it is signed."""
        if self._on_call is not None:
            own = call.spec.input_schema.get("properties") or {}
            given = json.loads(call.arguments)
            self._on_call(call, {name: given[name] for name in self.adds if name in given and name not in own})
        return call
