-- Which runs requests alike have begun, and how many clients attend to each: so that a repeat finds the run of its first.
--
-- KEYS  the hash of these requests: run id -> clients, when its answer was sent (ms, 0 for not yet), when it was changed
--       (ms), whether it is known to be stored (1 or 0)
-- ARGV  what to do (take, again, begun, leave, forget), a run id, how long to keep the hash (s), then
--       take:   1 for a repeat, and for how long a run can be joined once its answer was sent (ms)
--       again:  the run that has failed in whose place this one comes
--       leave:  1 if its answer was sent
-- Reply take, again: the run's id, and whether it is known to be stored; leave: what is kept of it now, or false if others attend to it; begun, forget: nothing

local asked = KEYS[1]
local what, run, keep_s = ARGV[1], ARGV[2], tonumber(ARGV[3])

local LOOKED_AT = 8

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function read(id)
  local clients, answered, changed, stored =
    string.match(redis.call('HGET', asked, id) or '', '^(%d+) (%d+) (%d+) ([01])$')
  if not clients then return nil end
  return { id = id, clients = tonumber(clients), answered = tonumber(answered), changed = tonumber(changed), stored = stored }
end

local function write(entry)
  local value = string.format('%d %.0f %.0f %s', entry.clients, entry.answered, now, entry.stored)
  redis.call('HSET', asked, entry.id, value)
  redis.call('EXPIRE', asked, keep_s)
  return value
end

local function attended(id)
  local entry = read(id) or { id = id, clients = 0, answered = 0, stored = '0' }
  entry.clients = entry.clients + 1
  entry.answered = 0
  write(entry)
  return { id, entry.stored }
end

-- First those that nobody listens to any more, the one that was left last: what was left long ago was given up. Then
-- those whose client may be gone without our knowing, the one that was asked for first. Last those whose answer was sent
-- just now, and may not have arrived.
local function rank(entry)
  if entry.clients > 0 then return 2 end
  return entry.answered == 0 and 1 or 3
end

local function is_better(entry, other)
  if rank(entry) ~= rank(other) then return rank(entry) < rank(other) end
  if rank(entry) == 2 then return entry.changed < other.changed end
  return entry.changed > other.changed
end

local function is_past(entry, answered_for_ms)
  local age_ms = now - entry.changed
  if age_ms > keep_s * 1000 then return true end
  return entry.clients == 0 and entry.answered > 0 and now - entry.answered > answered_for_ms
end

local function best(answered_for_ms)
  local found
  for _, id in ipairs(redis.call('HKEYS', asked)) do
    local entry = read(id)
    if not entry or is_past(entry, answered_for_ms) then
      redis.call('HDEL', asked, id)
    elseif not found or is_better(entry, found) then
      found = entry
    end
  end
  return found
end

-- Whoever asks the same again and again keeps the hash alive, so each of them takes away some of what is past.
local function tidy(answered_for_ms)
  for _, id in ipairs(redis.call('HRANDFIELD', asked, LOOKED_AT)) do
    local entry = read(id)
    if not entry or is_past(entry, answered_for_ms) then redis.call('HDEL', asked, id) end
  end
end

if what == 'take' then
  tidy(tonumber(ARGV[5]))
  local found = ARGV[4] == '1' and best(tonumber(ARGV[5]))
  return attended(found and found.id or run)
elseif what == 'again' then
  redis.call('HDEL', asked, ARGV[4])
  return attended(run)
elseif what == 'begun' then
  local entry = read(run)
  if entry and entry.stored == '0' then
    entry.stored = '1'
    write(entry)
  end
  return false
elseif what == 'leave' then
  local entry = read(run) or { id = run, clients = 1, answered = 0 }
  entry.clients = math.max(0, entry.clients - 1)
  entry.stored = '1'
  if ARGV[4] == '1' then entry.answered = now end
  local value = write(entry)
  return entry.clients == 0 and value
elseif what == 'forget' then
  local entry = read(run)
  if entry and entry.stored == '0' and entry.clients <= 1 then
    redis.call('HDEL', asked, run)
  elseif entry then
    entry.clients = entry.clients - 1
    write(entry)
  end
  return false
end
