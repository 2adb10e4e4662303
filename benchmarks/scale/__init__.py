"""What more workers, orchestrators and waiting calls and runs cost, measured, and a model of what more machines do.

`python -m benchmarks.scale` measures it here; docs/scaling.md says what came of it. Every process is real and its own:
the server, each worker, each orchestrator.
"""
