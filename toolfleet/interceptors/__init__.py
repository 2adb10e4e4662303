"""Around a tool on its worker: `@tool(interceptors=[…])` for one, `--interceptor module:name` for all of a worker."""

from toolfleet.interceptors.caching import Cache, MemoryStore, ResultStore
from toolfleet.interceptors.guards import ConcurrencyLimit, Permission, TimeLimit
from toolfleet.interceptors.masking import Mask
from toolfleet.interceptors.protocol import Call, Interceptor, Proceed, Result
from toolfleet.interceptors.retrying import Retry

__all__ = [
    "Cache",
    "Call",
    "ConcurrencyLimit",
    "Interceptor",
    "Mask",
    "MemoryStore",
    "Permission",
    "Proceed",
    "Result",
    "ResultStore",
    "Retry",
    "TimeLimit",
]
