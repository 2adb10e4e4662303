# The public names of interceptors around a tool, and where they live.

from .caching import Cache as Cache, MemoryStore as MemoryStore, ResultStore as ResultStore
from .guards import ConcurrencyLimit as ConcurrencyLimit, Permission as Permission, TimeLimit as TimeLimit
from .masking import Mask as Mask
from .protocol import Call as Call, Interceptor as Interceptor, Proceed as Proceed, Result as Result
from .retrying import Retry as Retry
