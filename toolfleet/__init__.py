"""Toolfleet: everything that its users import.

The public names stand in `__init__.pyi`. A name is imported when it is first asked for, so a module with tools loads
neither Redis nor Celery, and nothing that runs conversations.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
