"""The rehearsal model: a deterministic planner behind a real HTTP server that speaks Chat Completions.

It stands in for a language model where there is no key (demo, tests) and says so in every answer. The planner
(`planner`, pure) knows only the request, as a real model would; the server (`server`) knows only the wire. The names
stand in `__init__.pyi`, and each is imported when it is first asked for: many ask for the model's name only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
