"""What the server is told of whoever connects, as `CLIENT LIST` shows it: redis-py, and which Toolfleet uses it."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from redis.driver_info import DriverInfo


@cache
def driver() -> DriverInfo:
    """Return it, made once: redis-py reads its package's metadata anew for each connection that is given none."""
    return DriverInfo().add_upstream_driver("toolfleet", version("toolfleet"))
