"""Whether this process is to be traced: only if its user has brought OpenTelemetry's SDK and set a provider.

The one place that may import what imports OpenTelemetry, and it does so only then.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from toolfleet.logs import FactLog

if TYPE_CHECKING:
    from toolfleet.tracing.spans import Tracing

log = FactLog("toolfleet")

SDK: Final = "opentelemetry.sdk.trace"


def find_tracing() -> Tracing | None:
    """Return what records spans here; None where nobody has set a tracer provider of the SDK by now.

    Asked when an orchestrator opens and when a worker begins to perform calls: set the provider before.
    """
    if SDK not in sys.modules:
        return None
    spans = import_module("toolfleet.tracing.spans")
    tracing: Tracing | None = spans.tracing_here()
    if tracing is None:
        log.info("tracing_off", reason="no tracer provider of OpenTelemetry's SDK is set, or OTEL_SDK_DISABLED is")
    return tracing
