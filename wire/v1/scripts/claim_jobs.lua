-- Claims jobs that are due, for one worker until its lease on them lapses. Begins with clock.lua.
--
-- KEYS  the schedules of some tools
-- ARGV  prefixes of jobs, cancel marks, results and marks of ended jobs, how many at most, lease (ms)
-- Reply {now, the next due time or -1, {{call, fence, record, state or '', whether it is to be cancelled (1 or 0),
--       what is stored as its call's result or '', which job of the call has ended or ''}…}, keys of a wrong type}

local jobs, marks, results, ended = unpack(ARGV)
local room, lease_ms = tonumber(ARGV[5]), tonumber(ARGV[6])
local now, next_due, claimed, of_wrong_type = now_ms(), -1, {}, {}

-- Whoever writes to Redis can put anything anywhere: what would raise here would keep all other jobs waiting.
local function is_readable(key, kind)
    local found = redis.call('TYPE', key).ok
    if found == kind or found == 'none' then return true end
    redis.call('DEL', key)
    of_wrong_type[#of_wrong_type + 1] = key
    return false
end

local function text_at(key)
    local text = redis.pcall('GET', key)
    return type(text) == 'string' and text or ''
end

local function next_fence(job)
    local fence = redis.pcall('HINCRBY', job, 'fence', 1)
    if type(fence) == 'number' and math.abs(fence) < 2 ^ 53 then return fence end
    -- No number, or one that Lua cannot tell from the next: higher than any that was counted up to.
    redis.call('HSET', job, 'fence', now)
    return now
end

for _, schedule in ipairs(KEYS) do
    local is_open = is_readable(schedule, 'zset') and room > 0
    local due = is_open and redis.call('ZRANGEBYSCORE', schedule, '-inf', now, 'LIMIT', 0, room) or {}
    for _, call in ipairs(due) do
        local job = jobs .. call
        local record = is_readable(job, 'hash') and redis.call('HGET', job, 'record')
        if record then
            -- The lease is the next due time: the jobs of a poller that is lost come up again.
            local lapses = now + lease_ms
            redis.call('ZADD', schedule, lapses, call)
            local fence = next_fence(job)
            redis.call('HSET', job, 'until', lapses)
            local state, is_marked = redis.call('HGET', job, 'state') or '', redis.call('EXISTS', marks .. call)
            local found = {call, fence, record, state, is_marked, text_at(results .. call), text_at(ended .. call)}
            claimed[#claimed + 1] = found
            room = room - 1
        else
            redis.call('ZREM', schedule, call)
        end
    end
    local first = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
    if first and (next_due < 0 or tonumber(first) < next_due) then next_due = tonumber(first) end
end
return {now, next_due, claimed, of_wrong_type}
