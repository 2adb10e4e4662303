"""The loggers below `toolfleet`, which say nothing by themselves. Apart from the package: it loads what a command needs
before it can hear Ctrl-C, and `logging` is most of that.
"""

from __future__ import annotations

import logging

# Whoever uses a library sets up logging, or hears nothing: without this Python would print warnings by itself.
logging.getLogger("toolfleet").addHandler(logging.NullHandler())


def logger(name: str) -> logging.Logger:
    """Return the logger of this name; unless somebody has set up logging, nothing is printed of what it is told."""
    return logging.getLogger(name)
