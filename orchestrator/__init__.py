"""Runs conversations: asks the model, sends its tool calls to the fleet, gathers the results. Never runs a tool.

The public names stand in `__init__.pyi`, and only there: every room below is internal. A name is imported when it is
first asked for, so that a command which needs none of them starts at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
