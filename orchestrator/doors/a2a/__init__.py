"""The fleet as an agent that other agents ask: A2A, protocol 1.0 and, over JSON-RPC, 0.3. A task is a run.

Needs the extra `toolfleet[a2a]`, of which only records and errors of the protocol are used: a task is kept as a run is.
"""
