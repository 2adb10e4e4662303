"""How fast Toolfleet is beside its neighbours, measured on this machine in one run.

`python -m benchmarks` starts every contender's real worker processes and its own server, one contender at a time.
"""
