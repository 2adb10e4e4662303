"""A worker that reaches its fleet over HTTPS only: `toolfleet worker --over https://…`.

It never sees Redis or the secret. What it says is in `toolfleet/work.py`; how a tool is run is
`workers/tool/execute.py`, as on any worker.
"""

from typing import Final

KEY_VARIABLE: Final = "TOOLFLEET_WORKER_KEY"
"""Where the worker finds its key, unless the command line has it."""
