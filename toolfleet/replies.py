"""What every script that ends a call does in the end, as Lua that such scripts begin with.

The one place that decides who is told of a call; knows nothing of queues, jobs or workers.
"""

from __future__ import annotations

from typing import Final

from toolfleet.keys import REPLIES_TTL_S, Keys

_IN_ANY_NAMESPACE: Final = Keys("")

TELL: Final = f"""
-- Whom to tell: the orchestrator that sent the call or, when its lease is gone, who owns the run by now.
local is_there = {{}}
local function mailbox(replies, call)
  if is_there[replies] == nil then
    local namespace, orchestrator = string.match(replies, '^(.-){_IN_ANY_NAMESPACE.replies("")}(.*)$')
    is_there[replies] = redis.call('EXISTS', namespace .. '{_IN_ANY_NAMESPACE.orchestrator("")}' .. orchestrator) == 1
  end
  if is_there[replies] then return replies end
  local namespace = string.match(replies, '^(.-){_IN_ANY_NAMESPACE.replies("")}')
  local run = string.match(call, '^(.*)%.%d+%.%d+$')
  local owner = run and redis.call('HGET', namespace .. '{_IN_ANY_NAMESPACE.head("")}' .. run, 'owner')
  if not owner then return replies end
  return namespace .. '{_IN_ANY_NAMESPACE.replies("")}' .. owner
end

-- Tell whoever waits for a call; `field` says what it is: 'r' its result, 's' that it goes on elsewhere.
local function tell(replies, call, field, sealed, maxlen)
  local box = mailbox(replies, call)
  redis.call('XADD', box, 'MAXLEN', '~', maxlen, '*', 'c', call, field, sealed)
  if box ~= replies then redis.call('EXPIRE', box, {REPLIES_TTL_S}) end
end

-- Store the result of a call and tell of it. 1, or 2 when it had a result: the first one counts.
local function settle(prefix, call, sealed, ttl_ms, replies, maxlen)
  if not redis.call('SET', prefix .. call, sealed, 'NX', 'PX', ttl_ms) then return 2 end
  tell(replies, call, 'r', sealed, maxlen)
  return 1
end
"""
