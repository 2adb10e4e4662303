-- Gives schedules whose ticks are due to one orchestrator for a while: whoever takes one and is lost, the next finds it due.
-- Begins with clock.lua.
--
-- KEYS  the schedules by their next ticks
-- ARGV  how many at most, for how long they are given (ms), prefix of schedules
-- Reply {now (ms), id, schedule, id, schedule, …}

local due = KEYS[1]
local at_most, given_ms, prefix = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local now = now_ms()
local taken = {string.format('%.0f', now)}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', string.format('%.0f', now), 'LIMIT', 0, at_most)) do
    local kept = redis.pcall('GET', prefix .. id)
    if type(kept) == 'string' then
        redis.call('ZADD', due, string.format('%.0f', now + given_ms), id)
        taken[#taken + 1] = id
        taken[#taken + 1] = kept
    else
        redis.call('ZREM', due, id)
    end
end
return taken
