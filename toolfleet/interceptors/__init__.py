"""Around a tool on its worker: `@tool(interceptors=[…])` for one, `--interceptor module:name` for all of a worker.

The public names stand in `__init__.pyi`, and are imported when they are first asked for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
