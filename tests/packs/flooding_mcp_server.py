"""An MCP server of an earlier protocol that says without end that its tools have changed, and lists ever more of them.

Written by hand: no library would do that. Its first list has one tool, any later one a hundred thousand entries.
"""

import json
import sys
import threading

CHANGED = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}) + "\n"
writing = threading.Lock()
listed = 0


def tool(name):
    return {"name": name, "inputSchema": {"type": "object"}}


def tools():
    if listed == 1:
        return [tool("steady")]
    strange = [tool("steady"), tool("read_result"), {"name": "no tool"}, tool("x" * 100_000)]
    return [tool("steady"), tool(f"list_{listed}"), *strange, *(tool(f"tool_{number}") for number in range(100_000))]


def answered(method, params):
    global listed  # noqa: PLW0603  # a server of one client
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            server = {"name": "flooding", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": server}
        case "tools/list":
            listed += 1
            return {"tools": tools()}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"listed {listed} times"}]}
    return None


def write(line):
    with writing:
        sys.stdout.write(line)
        sys.stdout.flush()


def flood():
    while True:
        write(CHANGED * 100)


for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "notifications/initialized":
        threading.Thread(target=flood, daemon=True).start()
    if "id" in message:
        result = answered(message.get("method"), message.get("params"))
        found = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
        write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **found}) + "\n")
