-- Claims jobs that are due, for one worker until its lease on them lapses. Begins with clock.lua.
--
-- KEYS  the schedules of some tools
-- ARGV  prefix of jobs, prefix of cancel marks, how many at most, lease (ms)
-- Reply {now, the next due time or -1, {{call, fence, record, state or '', whether it is to be cancelled (1 or 0)}…}}

local jobs, marks, room, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now, next_due, claimed = now_ms(), -1, {}

for _, schedule in ipairs(KEYS) do
    local due = room > 0 and redis.call('ZRANGEBYSCORE', schedule, '-inf', now, 'LIMIT', 0, room) or {}
    for _, call in ipairs(due) do
        local job = jobs .. call
        local record = redis.call('HGET', job, 'record')
        if record then
            -- The lease is the next due time: the jobs of a poller that is lost come up again.
            local lapses = now + lease_ms
            redis.call('ZADD', schedule, lapses, call)
            local fence = redis.call('HINCRBY', job, 'fence', 1)
            redis.call('HSET', job, 'until', lapses)
            local state = redis.call('HGET', job, 'state') or ''
            claimed[#claimed + 1] = {call, fence, record, state, redis.call('EXISTS', marks .. call)}
            room = room - 1
        else
            redis.call('ZREM', schedule, call)
        end
    end
    local first = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
    if first and (next_due < 0 or tonumber(first) < next_due) then next_due = tonumber(first) end
end
return {now, next_due, claimed}
