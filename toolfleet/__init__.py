"""Toolfleet: everything that its users import.

The public names stand in `__init__.pyi`. A name is imported when it is first asked for, so a module with tools loads
neither Redis nor Celery, and nothing that runs conversations.
"""

import logging

import lazy_loader

# Whoever uses a library sets up logging, or hears nothing: without this Python would print warnings by itself.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
