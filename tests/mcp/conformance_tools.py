"""The tools that the protocol's conformance suite calls, each as the suite describes it; see docs/mcp.md."""

import asyncio
import base64
import struct
import zlib
from typing import Annotated

from pydantic import Field

from toolfleet import Context, Form, Media, ModelPrompt, ToolError, ask, current_context, hand_written, tool


def _png() -> bytes:
    """One red pixel."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


PNG = _png()
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")

NAME = {"name": {"type": "string"}}


# --- results ------------------------------------------------------------------------------------------------------


@tool(read_only=True)
async def test_simple_text() -> str:
    """Simple."""
    return "This is a simple text response for testing."


@tool(read_only=True)
async def test_image_content() -> list:
    """An image."""
    return [Media(PNG, "image/png")]


@tool(read_only=True)
async def test_audio_content() -> list:
    """A sound."""
    return [Media(WAV, "audio/wav")]


@tool(read_only=True)
async def test_embedded_resource() -> list:
    """A file."""
    return [Media(b"This is an embedded resource content.", "text/plain", name="embedded.txt")]


@tool(read_only=True)
async def test_multiple_content_types() -> list:
    """Text, an image and a file."""
    note = Media(b'{"test": "data", "value": 123}', "application/json", name="mixed.json")
    return ["Multiple content types test:", Media(PNG, "image/png"), note]


@tool(read_only=True)
async def test_error_handling() -> str:
    """Error."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool(read_only=True)
async def test_tool_with_progress() -> str:
    """Progress."""
    for part in (0.0, 0.5, 1.0):
        current_context().progress(part)
        await asyncio.sleep(0.6)
    return "done"


@tool(read_only=True)
async def test_tool_with_logging() -> str:
    """Says what it does."""
    for part, said in enumerate(("Tool execution started", "Tool processing data", "Tool execution completed")):
        current_context().progress(part / 2, said)
        await asyncio.sleep(0.6)
    return "done"


@tool(read_only=True)
async def test_logging_tool() -> str:
    """Says something, to whoever wants to hear it."""
    current_context().progress(0.5, "half of it")
    return "done"


async def _schema_tool(arguments: dict, _context: Context) -> str:
    return str(arguments)


json_schema_2020_12_tool = hand_written(
    {
        "name": "json_schema_2020_12_tool",
        "description": "Tool with JSON Schema 2020-12 features",
        "read_only": True,
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": False,
        },
    },
    _schema_tool,
)


@tool(read_only=True)
async def test_headers(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """One argument travels in a header too."""
    return f"served in {region}"


# --- questions ----------------------------------------------------------------------------------------------------


@tool(read_only=True)
async def test_elicitation(message: str) -> str:
    """Ask the user."""
    fields = {"username": {"type": "string"}, "email": {"type": "string"}}
    return f"User response: {ask(user=Form(message, fields))['user']}"


@tool(read_only=True)
async def test_elicitation_sep1034_defaults() -> str:
    """Ask with defaults."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return f"Elicitation completed: {ask(user=Form('Who are you?', fields))['user']}"


@tool(read_only=True)
async def test_elicitation_sep1330_enums() -> str:
    """Ask with choices."""
    options = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return f"Elicitation completed: {ask(user=Form('Choose', fields))['user']}"


@tool(read_only=True)
async def test_sampling(prompt: str) -> str:
    """Ask the client's model."""
    return f"LLM response: {ask(model=ModelPrompt(prompt, max_tokens=100))['model']}"


@tool(read_only=True)
async def test_missing_capability() -> str:
    """Ask the client's model."""
    return ask(model=ModelPrompt("Anything"))["model"]


@tool(read_only=True)
async def test_streaming_elicitation() -> str:
    """Ask the user."""
    return str(ask(user=Form("Go on?", {"ok": {"type": "boolean"}})))


@tool(read_only=True)
async def test_input_required_result_elicitation() -> str:
    """Ask the user."""
    return f"Hello, {ask(user_name=Form('What is your name?', NAME))['user_name']['name']}!"


@tool(read_only=True)
async def test_input_required_result_sampling() -> str:
    """Ask the client's model."""
    return ask(capital_question=ModelPrompt("What is the capital of France?", max_tokens=100))["capital_question"]


@tool(read_only=True)
async def test_input_required_result_request_state() -> str:
    """Ask the user."""
    ask(confirm=Form("Please confirm", {"ok": {"type": "boolean"}}))
    return "state-ok"


@tool(read_only=True)
async def test_input_required_result_tampered_state() -> str:
    """Ask the user."""
    ask(confirm=Form("Please confirm", {"ok": {"type": "boolean"}}))
    return "state-ok"


@tool(read_only=True)
async def test_input_required_result_multiple_inputs() -> str:
    """Ask the user and the client's model."""
    said = ask(user_name=Form("What is your name?", NAME), greeting=ModelPrompt("Generate a greeting", max_tokens=50))
    return f"{said['greeting']} {said['user_name']['name']}"


@tool(read_only=True)
async def test_input_required_result_multi_round() -> str:
    """Ask, then ask again."""
    name = ask(step1=Form("Step 1: What is your name?", NAME))["step1"]["name"]
    color = ask(step2=Form("Step 2: What is your favorite color?", {"color": {"type": "string"}}))["step2"]["color"]
    return f"{name} likes {color}"


@tool(read_only=True)
async def test_input_required_result_capabilities() -> str:
    """Ask whoever can be asked."""
    said = ask(user=Form("What is your name?", NAME), model=ModelPrompt("Generate a greeting"))
    return str(said)


# --- tasks --------------------------------------------------------------------------------------------------------


@tool(read_only=True)
async def greet(name: str) -> str:
    """Greet."""
    return f"Hello, {name}!"


@tool(read_only=True, long_running=True)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return f"{label} computed"


@tool(read_only=True, long_running=True)
async def failing_job() -> str:
    """Fail."""
    await asyncio.sleep(1)
    raise ToolError("failed")


@tool(read_only=True, long_running=True)
async def protocol_error_job() -> str:
    """Fail."""
    raise RuntimeError("crash")


CONFIRM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}


@tool(read_only=True, long_running=True)
async def confirm_delete(ctx: Context, filename: str = "") -> str:
    """Ask the user while it runs."""
    return "deleted" if (await ctx.ask(f"Delete {filename}?", CONFIRM))["confirm"] else "kept"


@tool(read_only=True, long_running=True)
async def multi_input(ctx: Context) -> str:
    """Ask the user two things at once."""
    said = await asyncio.gather(ctx.ask("Who?", CONFIRM, key="who"), ctx.ask("Whom?", CONFIRM, key="whom"))
    return str(said)


@tool(read_only=True, patience_s=2)
async def test_tool_with_task() -> str:
    """Ask the user first, then take long."""
    name = ask(user_name=Form("What is your name?", NAME))["user_name"]["name"]
    await asyncio.sleep(3)
    return f"Hello, {name}!"
