"""LangChain and LangGraph: the fleet's tools as a list, and a node that performs all calls of a message in one batch.

Needs the extra `toolfleet[langchain]`. Translates messages; knows no graph.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage as LangChainToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from toolfleet.calls import MediaPart
from toolfleet.media import essence_of
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.adapters.asking import FrameworkCalls, shown_as
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.errors import NotHere
from toolfleet.orchestrator.models.names import NameMap, legal_name
from toolfleet.tool import ToolSpec

T = TypeVar("T")

Content = str | list[str | dict[str, Any]]
"""What a message of LangChain may say."""

_BLOCKS: Final = frozenset({"image", "file"})
"""What its messages of tools may hold beside text; of others LangChain makes a text of their JSON."""

Approve = Callable[[AIMessage], Collection[str]]
"""Which calls of a message (their ids) may run though their tools require approval."""


@exact()
async def fleet_tools(
    orchestrator: Orchestrator,
    names: Sequence[str] | None = None,
    *,
    context: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
) -> list[BaseTool]:
    """The named tools, or all that live workers serve now and `read_result`, for `model.bind_tools` or any agent.

    They are awaited on the orchestrator's loop, or called from other threads. Tools that require approval are denied:
    ask in your graph, and let FleetToolNode run them. Raises UnknownTool, StoreUnreachable.
    """
    asking = FrameworkCalls(orchestrator, context or {}, timeout_s)
    loop = asyncio.get_running_loop()
    return [FleetTool.of(spec, asking, loop) for spec in (await asking.specs(names)).values()]


class FleetTool(BaseTool):
    """One tool of the fleet. Its arguments go as they are: the worker that knows the tool checks them."""

    handle_tool_error: bool = True
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    _asking: FrameworkCalls = PrivateAttr()
    _loop: asyncio.AbstractEventLoop = PrivateAttr()
    _spec: ToolSpec = PrivateAttr()

    @classmethod
    def of(cls, spec: ToolSpec, asking: FrameworkCalls, loop: asyncio.AbstractEventLoop) -> FleetTool:
        """The tool of a spec."""
        made = cls(
            name=legal_name(spec.name),
            description=spec.description,
            args_schema=spec.input_schema,
            return_direct=spec.return_direct,
            tags=list(spec.tags),
            metadata={"effect": spec.effect.value},
        )
        made._spec, made._asking, made._loop = spec, asking, loop
        return made

    async def _arun(self, /, **arguments: Any) -> tuple[Content, list[dict[str, Any]] | None]:
        """The tool's content, and its media for the application.

        Raises ToolException, which becomes a message with status "error".
        """
        answer, _ = await self._asking.answer(self._spec.name, json.dumps(arguments))
        if answer.is_error:
            raise ToolException(answer.content)
        return _content(answer), _artifact(answer)

    def _run(self, /, **arguments: Any) -> tuple[Content, list[dict[str, Any]] | None]:
        """The same for another thread than the loop's."""
        return _from_thread(self._loop, self._arun(**arguments))


@exact()
class FleetToolNode(Runnable[Any, Any]):
    """A node for `graph.add_node("tools", FleetToolNode(orchestrator))`, in place of LangGraph's ToolNode.

    Takes the newest AIMessage of the state (or of a plain list of messages), performs those of its calls that no
    ToolMessage answers yet, all in one batch, and returns one ToolMessage for each, in its order. Malformed calls are
    answered too, so a history never has a call without its message.
    """

    name = "tools"

    def __init__(
        self,
        orchestrator: Orchestrator,
        *,
        messages_key: str = "messages",
        context: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        approve: Approve | None = None,
    ) -> None:
        """Call it where the orchestrator's loop runs; `invoke` may come from any other thread."""
        self._asking = FrameworkCalls(orchestrator, context or {}, timeout_s)
        self._messages_key = messages_key
        self._approve = approve
        self._loop = asyncio.get_running_loop()

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002  # LangChain's name
        """The ToolMessages, in the form of the state. Raises BrokerUnreachable, StoreUnreachable."""
        del config, kwargs
        messages = input if isinstance(input, list) else _field(input, self._messages_key)
        newest, requests = _owed(cast("list[AnyMessage]", messages))
        known = NameMap(await self._asking.orchestrator.catalog.offered())
        asked = AssistantMessage(
            tool_calls=tuple(call.model_copy(update={"name": known.to_catalog(call.name)}) for call in requests)
        )
        approved = self._approve(newest) if self._approve and newest else ()
        answers = [_answer(answer) for answer in await self._asking.answers(asked, approved=approved)]
        return answers if isinstance(input, list) else {self._messages_key: answers}

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002  # LangChain's name
        """The same for another thread than the loop's."""
        return _from_thread(self._loop, self.ainvoke(input, config, **kwargs))


def _owed(messages: Sequence[AnyMessage]) -> tuple[AIMessage | None, list[RequestedCall]]:
    """The newest AIMessage, and those of its calls that have no answer."""
    answered = set()
    for message in reversed(messages):
        if isinstance(message, LangChainToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return message, [call for call in _requests(message) if call.id not in answered]
    return None, []


def _requests(message: AIMessage) -> list[RequestedCall]:
    whole = [(call["id"], call["name"], json.dumps(call["args"])) for call in message.tool_calls]
    # What LangChain could not parse goes as the model wrote it: repaired if that is safe, else complained of.
    torn = [(call["id"], call["name"] or "", call["args"] or "") for call in message.invalid_tool_calls]
    return [
        RequestedCall(id=call_id or f"call_{position}", name=name, arguments=arguments)
        for position, (call_id, name, arguments) in enumerate([*whole, *torn])
    ]


def _answer(answer: ToolMessage) -> LangChainToolMessage:
    return LangChainToolMessage(
        content=_content(answer),
        artifact=_artifact(answer),
        name=legal_name(answer.name),
        tool_call_id=answer.tool_call_id,
        status="error" if answer.is_error else "success",
    )


def _content(answer: ToolMessage) -> Content:
    """What a model reads and sees: text, and LangChain's standard blocks of what all providers take."""
    blocks = [_block(part) for part in answer.media if shown_as(part) in _BLOCKS]
    return [{"type": "text", "text": answer.content}, *blocks] if blocks else answer.content


def _block(part: MediaPart) -> dict[str, Any]:
    block = {"type": shown_as(part), "base64": part.data, "mime_type": essence_of(part.media_type)}
    return {**block, "extras": {"filename": part.name or "document.pdf"}} if block["type"] == "file" else block


def _artifact(answer: ToolMessage) -> list[dict[str, Any]] | None:
    """What the application gets of the media: what they are, and the data of those that are no content."""
    return [
        part.model_dump(mode="json", exclude={"data"} if shown_as(part) in _BLOCKS else None) for part in answer.media
    ] or None


def _field(state: Any, key: str) -> Any:
    return state[key] if isinstance(state, Mapping) else getattr(state, key)


def _from_thread(loop: asyncio.AbstractEventLoop, answer: Coroutine[Any, Any, T]) -> T:
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop:
        answer.close()
        raise NotHere("the orchestrator's loop runs in this thread: use ainvoke, or invoke from another thread")
    return asyncio.run_coroutine_threadsafe(answer, loop).result()
