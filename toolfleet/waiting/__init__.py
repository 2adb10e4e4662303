"""The waiting room of a queue, and the gates that limited calls pass: who goes next, decided in Redis by its clock.

The Lua that scripts of the transport begin with stands in `wire/v1/scripts/waiting/`. Knows keys, and nothing of
streams' readers or of workers.
"""
