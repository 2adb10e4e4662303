"""The ways in for everybody who does not write Python: commands, HTTP, OpenAI's API, MCP."""
