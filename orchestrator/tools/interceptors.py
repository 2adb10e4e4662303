"""What is done in the orchestrator with calls, before they are sent and after they are back, and around its model.

An interceptor sees one call at a time, in the order of declaration on the way out and in the reverse on the way back;
so it is with what the model is asked, and its reply. The halves may run in different orchestrators, if the run is taken
over between them, so nothing is kept in between but what is noted in the run's history. Around the tool itself, on its
worker, stand the worker's own interceptors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.messages import AssistantMessage, SystemMessage, UserMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.errors import ModelError
from toolfleet.orchestrator.models.protocol import ChatModel, reply
from toolfleet.orchestrator.tools.request import Heard, ModelRequest, Note, TextFilter
from toolfleet.tool import ToolSpec

Result = Returned | Failed


@dataclass(frozen=True, slots=True)
class RequestedToolCall:
    """A call as an interceptor sees it; `dataclasses.replace` changes what is sent."""

    call_id: str
    run_id: str
    tool: str
    arguments: str
    """The text of one JSON object: as the model wrote it, repaired where it was none. Only `after` sees a text that
    nothing could be made of, with the failure that came of it."""
    spec: ToolSpec
    context: Mapping[str, Any] = field(default_factory=dict)
    tenant: str = ""
    """Whose call it is."""
    subject: str = ""
    """Who asks."""


class Interceptor:
    """Override what you need. What its methods raise ends the run; a result is a call's way to fail."""

    tools: Sequence[ToolSpec] = ()
    """Tools that its runs have besides their own; it answers them itself, and no worker is asked. Read once."""

    name: str = ""
    """Under which its notes stand in a run; "" for the name of its class."""

    adds: Mapping[str, Mapping[str, Any]] = {}
    """Arguments that models are asked for with every tool and no tool gets: the schema of each, by name. Read once."""

    hides_results: bool = False
    """Whether whoever looks on is told of results only as `after` has left them, once all of a reply are back."""

    hides_replies: bool = False
    """Whether whoever looks on is told of a reply only as `hear` has left it, once it is whole."""

    async def answer(self, call: RequestedToolCall) -> Result:
        """The result of a call of one of its own tools; asked again if its orchestrator is lost meanwhile.

        The call has been through all that any other goes through: approval, where its spec wants one, every
        interceptor's `before`, and a check of its arguments against its schema.
        """
        return Failed(kind=FailureKind.UNKNOWN_TOOL, message=f"nobody answers {call.tool}")

    async def before(self, call: RequestedToolCall) -> RequestedToolCall | Result:
        """The call to send, changed or not; or its result, and then nothing is sent."""
        return call

    async def after(self, call: RequestedToolCall, result: Result) -> Result:
        """The result to record, changed or not."""
        del call
        return result

    async def decide(self, request: ModelRequest) -> Note | None:
        """What has to be found out before the model is asked, by another model for example; None for nothing.

        It is written into the history, and from then on it is `request.note`, whoever goes on with the run. Asked
        before each reply, with what the interceptors before it have made of the request.
        """
        del request
        return None

    def ask(self, request: ModelRequest) -> ModelRequest:
        """What the model is asked. The same for the same request, as whoever takes the run over asks again."""
        return request

    async def hear(self, request: ModelRequest, message: AssistantMessage) -> Heard:
        """The reply as it is to be stored, or why nobody may see it; its calls stay as they are."""
        del request
        return Heard(message)

    def text_filter(self) -> TextFilter | None:
        """What a reply's text goes through while it comes, for whoever looks on; it ends as `hear` leaves it."""
        return None


@exact()
class Permission(Interceptor):
    """Lets only those calls through that `allows`; it returns None, or the reason why not."""

    def __init__(self, allows: Callable[[RequestedToolCall], str | None]) -> None:
        self._allows = allows

    async def before(self, call: RequestedToolCall) -> RequestedToolCall | Result:
        """The call, or the denial with its reason."""
        reason = self._allows(call)
        if reason is None:
            return call
        return Failed(kind=FailureKind.DENIED, message=f"{call.tool} was not allowed: {reason}")


@exact()
class OnFailure(Interceptor):
    """Your own word for the model where a call has failed: `OnFailure(arguments=f, execution=g)`.

    Each takes the call and the failure and returns a result, a text to tell the model, or None to leave it as it is.
    `arguments` hears of arguments that could not be read, `execution` of everything else.
    """

    def __init__(
        self,
        *,
        arguments: Callable[[RequestedToolCall, Failed], Result | str | None] | None = None,
        execution: Callable[[RequestedToolCall, Failed], Result | str | None] | None = None,
    ) -> None:
        self._arguments = arguments
        self._execution = execution

    async def after(self, call: RequestedToolCall, result: Result) -> Result:
        """The result, or what is said instead of a failure."""
        if not isinstance(result, Failed):
            return result
        handler = self._arguments if result.kind is FailureKind.BAD_ARGUMENTS else self._execution
        said = None if handler is None else handler(call, result)
        if isinstance(said, str):
            return result.model_copy(update={"message": said})
        return said or result


@exact()
class Emulation(Interceptor):
    """A model plays these tools: nothing is sent to a worker. For trying out a conversation before its tools exist."""

    INSTRUCTIONS: Final = (
        "You stand in for a tool. Answer with what the tool would plausibly return for these arguments, as the bare "
        "return value (JSON where it is not text), without any explanation."
    )

    def __init__(self, model: ChatModel, tools: Collection[str]) -> None:
        self._model = model
        self._tools = frozenset(tools)

    async def before(self, call: RequestedToolCall) -> RequestedToolCall | Result:
        """What the model says that the tool returns."""
        if call.tool not in self._tools:
            return call
        asked = f"Tool: {call.tool}\n{call.spec.description}\nArguments: {call.arguments}"
        try:
            played = await reply(self._model, [SystemMessage(content=self.INSTRUCTIONS), UserMessage(content=asked)])
        except ModelError as error:
            return Failed(kind=FailureKind.ERROR, message=f"{call.tool} could not be emulated: {error}")
        return Returned(content=played.message.content)
