"""The Lua that moves jobs: submitted, claimed, and what came of asking. Every move is one atomic step.

Times are milliseconds by the server's clock. Knows the fields of a job's hash (`toolfleet.jobs`) and nothing of tools.
"""

from __future__ import annotations

from typing import Final

from toolfleet.jobs import NOW
from toolfleet.replies import TELL

SUBMIT: Final = f"""
{TELL}
-- KEYS: result, job, schedule, cancel mark, replies
-- ARGV: group, returned, stream, consumer, entry, call, sealed record, tool, reply_to, first wait (ms),
--       deadline (ms), end of all keys (ms), whether anybody asks, sealed Submitted, replies ttl (s), replies maxlen
local stream, consumer, entry, call = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if stream ~= '' then
  -- As when a result is settled: an entry that is another worker's by now means that a new attempt has begun.
  local pending = redis.pcall('XPENDING', stream, ARGV[1], entry, entry, 1)
  local owner = pending[1] and pending[1][2]
  if owner and owner ~= consumer and owner ~= ARGV[2] then return 0 end
end
local outcome = 2
-- HSETNX: this script is sent again when its reply was lost, and the job may have been asked about since.
if redis.call('EXISTS', KEYS[1]) == 0 and redis.call('HSETNX', KEYS[2], 'record', ARGV[7]) == 1 then
  outcome = 1
  redis.call('HSET', KEYS[2], 'tool', ARGV[8], 'to', ARGV[9])
  redis.call('PEXPIREAT', KEYS[2], ARGV[12])
  if ARGV[13] == '1' then
    {NOW}
    local due = redis.call('EXISTS', KEYS[4]) == 1 and now or math.min(now + ARGV[10], tonumber(ARGV[11]))
    redis.call('ZADD', KEYS[3], due, call)
    if redis.call('PEXPIREAT', KEYS[3], ARGV[12], 'NX') == 0 then redis.call('PEXPIREAT', KEYS[3], ARGV[12], 'GT') end
  end
  tell(KEYS[5], call, 's', ARGV[14], ARGV[16])
  redis.call('EXPIRE', KEYS[5], ARGV[15])
end
if stream ~= '' then
  redis.call('XACK', stream, ARGV[1], entry)
  redis.call('XDEL', stream, entry)
end
return outcome
"""

CLAIM: Final = f"""
-- KEYS: the schedules of some tools; ARGV: prefix of jobs, prefix of cancel marks, at most, lease (ms)
-- Returns now, the next due time (-1: none), then for each claimed job: call, fence, record, state, cancelled.
{NOW}
local room, next_due, claimed = tonumber(ARGV[3]), -1, {{}}
for _, schedule in ipairs(KEYS) do
  local due = room > 0 and redis.call('ZRANGEBYSCORE', schedule, '-inf', now, 'LIMIT', 0, room) or {{}}
  for _, call in ipairs(due) do
    local job = ARGV[1] .. call
    local record = redis.call('HGET', job, 'record')
    if record then
      -- The lease is the next due time: the jobs of a poller that is lost come up again.
      local lapses = now + ARGV[4]
      redis.call('ZADD', schedule, lapses, call)
      local fence = redis.call('HINCRBY', job, 'fence', 1)
      redis.call('HSET', job, 'until', lapses)
      local state = redis.call('HGET', job, 'state') or ''
      claimed[#claimed + 1] = {{call, fence, record, state, redis.call('EXISTS', ARGV[2] .. call)}}
      room = room - 1
    else
      redis.call('ZREM', schedule, call)
    end
  end
  local first = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
  if first and (next_due < 0 or tonumber(first) < next_due) then next_due = tonumber(first) end
end
return {{now, next_due, claimed}}
"""

REPORT: Final = f"""
{TELL}
-- ARGV: prefixes of jobs, schedules, results, cancel marks and replies; result ttl (ms), replies ttl (s),
--       replies maxlen; then for each job: what, call, fence, wait (ms), deadline (ms), text. `what` is one of
--       wait    ask again after the wait, at the deadline, or at once if it was cancelled; text: its state
--       retry   the same, cancelled or not
--       hold    still at it: the lease is the wait from now
--       end     text: the sealed result
--       drop    forget it
-- Returns for each job 0 if it was claimed again or has ended since, 1 if the word counted, 2 if it had a result.
{NOW}
local outcomes = {{}}
for i = 9, #ARGV, 6 do
  local what, call, fence, wait, deadline, text = unpack(ARGV, i, i + 5)
  local key, outcome = ARGV[1] .. call, 0
  local job = redis.call('HMGET', key, 'fence', 'tool', 'to')
  if job[1] == fence then
    outcome = 1
    local schedule = ARGV[2] .. job[2]
    if what == 'end' or what == 'drop' then
      if what == 'end' then
        local replies = ARGV[5] .. job[3]
        outcome = settle(ARGV[3], call, text, ARGV[6], replies, ARGV[8])
        redis.call('EXPIRE', replies, ARGV[7])
      end
      redis.call('DEL', key)
      redis.call('ZREM', schedule, call)
    elseif what == 'hold' then
      redis.call('HSET', key, 'until', now + wait)
      redis.call('ZADD', schedule, now + wait, call)
    else
      local due = math.min(now + wait, tonumber(deadline))
      if what == 'wait' and redis.call('EXISTS', ARGV[4] .. call) == 1 then due = now end
      redis.call('HSET', key, 'state', text)
      redis.call('HDEL', key, 'until')
      redis.call('ZADD', schedule, due, call)
    end
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
"""
