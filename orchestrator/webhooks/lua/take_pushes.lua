-- Takes tasks that are to be looked at. Each comes up again by itself when whoever looks is lost. Begins with clock.lua.
--
-- KEYS  the tasks that are to be looked at
-- ARGV  how many at most, the lease (ms)
-- Reply for each: the run, and the score that it has meanwhile

local due = KEYS[1]
local most, lease_ms = unpack(ARGV)

local now = now_ms()
local taken = {}
for _, run in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, most)) do
    redis.call('ZADD', due, now + lease_ms, run)
    taken[#taken + 1] = {run, tostring(now + lease_ms)}
end
return taken
