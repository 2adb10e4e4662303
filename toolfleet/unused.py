"""What libraries load wherever they find it and no command of toolfleet uses: processes start sooner without."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FOR_GOOD: Final = "httpx._main"
"""The command of httpx, which loads rich, Pygments and click: a third of what httpx takes."""

MEANWHILE: Final = "opentelemetry.sdk.metrics"
"""For redis-py's metrics of its own. It brings most of the SDK: a tenth of what starting a worker takes."""


@contextmanager
def unused_left_out() -> Iterator[None]:
    """Load modules in this block without what nobody asks for; the commands of toolfleet do.

    Whoever has set up OpenTelemetry (`OTEL_…`) has all of it, and so has what is loaded after the block.
    """
    missing = {FOR_GOOD} if _has_telemetry() else {FOR_GOOD, MEANWHILE}
    missing -= sys.modules.keys()
    for name in missing:
        sys.modules[name] = None  # type: ignore[assignment]  # as Python marks what is not to be found
    try:
        yield
    finally:
        if MEANWHILE in missing:
            del sys.modules[MEANWHILE]


def _has_telemetry() -> bool:
    return any(name.startswith("OTEL_") for name in os.environ)
