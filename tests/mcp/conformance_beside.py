"""The prompts and resources that the protocol's conformance suite reads, declared with the SDK; see docs/mcp.md."""

import base64

from conformance_tools import PNG
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    TextResourceContents,
)

server = MCPServer("conformance")


@server.resource("test://static-text", name="static text", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="static binary", mime_type="image/png")
def static_binary() -> bytes:
    return PNG


@server.resource("test://watched-resource", name="watched", mime_type="text/plain")
def watched() -> str:
    return "It can be watched, and does not change."


@server.resource("test://template/{id}/data", name="data", mime_type="application/json")
def templated(id: str) -> dict:  # noqa: A002  # the suite's own name
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.prompt()
def test_simple_prompt() -> str:
    """Simple."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """With arguments."""
    return f"Prompt with arguments: arg1={arg1!r}, arg2={arg2!r}"


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list:  # noqa: N803  # the suite's own name
    """With a resource."""
    contents = TextResourceContents(
        uri=resourceUri, mime_type="text/plain", text="Embedded resource content for testing."
    )
    return [
        UserMessage(EmbeddedResource(resource=contents)),
        UserMessage("Please process the embedded resource above."),
    ]


@server.prompt()
def test_prompt_with_image() -> list:
    """With an image."""
    image = ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")
    return [UserMessage(image), UserMessage("Please analyze the image above.")]


@server.prompt()
def test_input_required_result_prompt(ctx: Context):
    """Asks its user."""
    answer = (ctx.input_responses or {}).get("user_context")
    if isinstance(answer, ElicitResult):
        return f"In this context: {answer.content}"
    schema = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
    question = ElicitRequestFormParams(message="What context should the prompt use?", requested_schema=schema)
    return InputRequiredResult(input_requests={"user_context": ElicitRequest(params=question)})
