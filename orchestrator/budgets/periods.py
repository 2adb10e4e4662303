"""When budgets begin anew: at midnight, and with the month, in UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from toolfleet.orchestrator.run.accounts import Period

_PER: dict[Period, str] = {"day": " a day", "month": " a month"}


def resets_unix_s(period: Period, now_unix_s: float | None = None) -> float | None:
    """When an account of this period begins anew; None for one that never does."""
    now = datetime.fromtimestamp(time.time() if now_unix_s is None else now_unix_s, UTC)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return (today + timedelta(days=1)).timestamp()
    if period == "month":
        return (today.replace(day=1) + timedelta(days=32)).replace(day=1).timestamp()
    return None


def resets_text(period: Period) -> str:
    """How long an account lasts, as it is said behind its amount."""
    return _PER.get(period, "")
