"""The waiting room of a queue, and the gates that limited calls pass: who goes next, decided in Redis by its clock.

Scripts of the transport begin with the Lua that is here. Knows keys, and nothing of streams' readers or of workers.
"""
