"""An MCP server that means harm: `python hostile_mcp_server.py`, over stdio, without any SDK."""

import json
import sys

EVIL = "^(a+)+$"
OBJECT = {"type": "object", "properties": {}}


def twins(depth):
    """A schema that doubles the work with each level."""
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(depth)}
    return {"type": "object", "allOf": [{"$ref": "#/$defs/l0"}], "$defs": {**levels, f"l{depth}": {}}}


def tool(name, schema=OBJECT, description="Do it.", output=None):
    says = {"name": name, "description": description, "inputSchema": schema}
    return says if output is None else {**says, "outputSchema": output}


TOOLS = [
    tool("expression", {"type": "object", "properties": {"text": {"type": "string", "pattern": EVIL}}}),
    tool("expression_of_names", {"type": "object", "patternProperties": {EVIL: {}}, "additionalProperties": False}),
    tool("expression_of_results", output={"type": "object", "properties": {"text": {"pattern": EVIL}}}),
    tool("results_without_end", output=twins(40)),
    tool("wordy", description="x" * 5_000_000),
    tool("twice"),
    tool("twice"),
    tool("read_result"),
    tool("doubling", twins(40)),
    tool("tree", {"type": "object", "properties": {"child": {"$ref": "#"}, "kind": {"type": "string"}}}),
    tool("hidden", {"type": "object", "properties": {"x": {"$ref": "#/y/z"}}, "y": {"z": {"pattern": EVIL}}}),
    tool("by_default", {"type": "object", "properties": {"x": {"$ref": "#/default"}}, "default": {"pattern": EVIL}}),
    tool("elsewhere", {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:1/"}}}),
    tool("without_a_type", {"$defs": {}}),
    {"name": "nothing"},
    "no tool at all",
    tool("huge", {"type": "object", "description": "x" * 100_000}),
    tool("line_without_end"),
]


def answered(method, params):
    match method:
        case "initialize":
            server = {"name": "hostile", "version": "1"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": server,
            }
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call" if params["name"] == "line_without_end":
            while True:
                sys.stdout.write("x" * 65536)
        case "tools/call":
            return {"content": [], "structuredContent": {"text": "a" * 40 + "b"}}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answered(message.get("method"), message.get("params"))
    found = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **found}) + "\n")
    sys.stdout.flush()
