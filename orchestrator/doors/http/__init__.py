"""The HTTP doors of an orchestrator: its own API, and the OpenAI-compatible one.

Translates requests into calls of `Orchestrator` and back; decides nothing about a run. Nothing is imported here: keys
can be managed without a web framework.
"""
