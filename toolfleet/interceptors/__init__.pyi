# The public names of interceptors around a tool, and where they live.

from .caching import Cache as Cache, MemoryStore as MemoryStore, ResultStore as ResultStore
from .guards import ConcurrencyLimit as ConcurrencyLimit, TimeLimit as TimeLimit, ToolPermission as ToolPermission
from .masking import Mask as Mask
from .protocol import (
    Proceed as Proceed,
    ToolInterceptor as ToolInterceptor,
    ToolInvocation as ToolInvocation,
)
from .redis_store import RedisStore as RedisStore
from .retrying import Retry as Retry
