-- Counts something that is stored for one key and one tenant, or refuses it where either is over a limit.
--
-- KEYS  for each of the two: its runs that go on, what is stored for it (both sorted sets, scored by when last looked
--       at), and how many bytes each of those has (a hash; the empty field holds the sum)
-- ARGV  the key of Redis that it is (the head of a run, for one), its bytes, 1 for a run, how long to remember (s), the
--       states of runs that have ended (with commas), then for each of the two how many runs and how many bytes
-- Reply 0, or which limit stands against it: 1 runs and 2 bytes of the first, 3 and 4 of the second
--
-- Nobody tells when a run has ended or is gone, so a few of the oldest are looked at each time, and all that are needed
-- before anything is refused.

local member, bytes, is_run, keep_s = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4])
local FEW, MANY = 4, 2000
-- What is admitted is stored a moment later.
local YOUNG_S = 10

local time = redis.call('TIME')
local now_s = time[1] + time[2] / 1e6

local function has_ended(head)
  local state = redis.call('HGET', head, 'state')
  return not state or string.find(',' .. ARGV[5] .. ',', ',' .. state .. ',', 1, true)
end

local function is_gone(key) return redis.call('EXISTS', key) == 0 end

-- Drops the members that are no more; those that are go behind the others. They are looked at again next time.
local function look(set, sizes, most, is_over)
  local young = '(' .. (now_s - YOUNG_S)
  for _, each in ipairs(redis.call('ZRANGE', set, '-inf', young, 'BYSCORE', 'LIMIT', 0, most)) do
    if is_over(each) then
      redis.call('ZREM', set, each)
      if sizes then
        local size = tonumber(redis.call('HGET', sizes, each) or '0')
        redis.call('HDEL', sizes, each)
        redis.call('HINCRBY', sizes, '', -size)
      end
    else
      redis.call('ZADD', set, now_s - YOUNG_S, each)
    end
  end
end

-- A run that has ended within its first seconds counts no longer, so all of them are looked at where it matters.
local function forget_ended(set)
  for _, each in ipairs(redis.call('ZRANGE', set, 0, MANY)) do
    local age_s = now_s - tonumber(redis.call('ZSCORE', set, each))
    local state = redis.call('HGET', each, 'state')
    if (state or age_s > YOUNG_S) and has_ended(each) then redis.call('ZREM', set, each) end
  end
end

for i = 0, 1 do
  local running, stored, sizes = KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3]
  local most_runs, most_bytes = tonumber(ARGV[6 + 2 * i]), tonumber(ARGV[7 + 2 * i])
  look(running, nil, FEW, has_ended)
  look(stored, sizes, FEW, is_gone)
  if is_run then
    local counts = redis.call('ZSCORE', running, member)
    if not counts and redis.call('ZCARD', running) >= most_runs then
      forget_ended(running)
      if redis.call('ZCARD', running) >= most_runs then return 2 * i + 1 end
    end
    if tonumber(redis.call('HGET', sizes, '') or '0') + bytes > most_bytes then
      look(stored, sizes, MANY, is_gone)
      if tonumber(redis.call('HGET', sizes, '') or '0') + bytes > most_bytes then return 2 * i + 2 end
    end
  end
end

for i = 0, 1 do
  local running, stored, sizes = KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3]
  if is_run then redis.call('ZADD', running, now_s, member) end
  redis.call('ZADD', stored, now_s, member)
  redis.call('HINCRBY', sizes, member, bytes)
  redis.call('HINCRBY', sizes, '', bytes)
  for _, key in ipairs({ running, stored, sizes }) do redis.call('EXPIRE', key, keep_s) end
end
return 0
