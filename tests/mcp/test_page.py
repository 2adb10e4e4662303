"""The parts of docs/mcp.md agree with one another; that they work is tested with all pages, in tests/docs."""

import json

from tests.docs.pages import Page


def test_the_settings_of_a_host_start_the_server_of_the_first_example():
    blocks = Page("docs/mcp.md").blocks
    first = next(block.text for block in blocks if block.language == "python")
    [host] = json.loads(next(block.text for block in blocks if block.language == "json"))["mcpServers"].values()
    assert f'command="{host["command"]}", args={json.dumps(host["args"])}' in first
