"""Asking models: wire formats, retries, fallbacks, and the rehearsal model for machines without a key.

Knows messages and tool specs; it must not know Redis, Celery or how a call is run. The names stand in `__init__.pyi`,
and each is imported when it is first asked for: most commands read runs, and ask no model.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
