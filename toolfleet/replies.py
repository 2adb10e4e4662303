"""What every script that ends a call does in the end, as Lua that such scripts begin with.

The one place that decides who is told of a call; knows nothing of queues, jobs or workers.
"""

from __future__ import annotations

from typing import Final

TELL: Final = """
-- Tell whoever waits for a call; `field` says what it is: 'r' its result, 's' that it goes on elsewhere.
local function tell(replies, call, field, sealed, maxlen)
  redis.call('XADD', replies, 'MAXLEN', '~', maxlen, '*', 'c', call, field, sealed)
end

-- Store the result of a call and tell of it. 1, or 2 when it had a result: the first one counts.
local function settle(prefix, call, sealed, ttl_ms, replies, maxlen)
  if not redis.call('SET', prefix .. call, sealed, 'NX', 'PX', ttl_ms) then return 2 end
  tell(replies, call, 'r', sealed, maxlen)
  return 1
end
"""
