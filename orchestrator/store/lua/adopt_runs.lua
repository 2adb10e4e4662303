-- Makes unowned runs an orchestrator's own, in their heads and in their streams.
--
-- KEYS  the unowned runs of its model, its runs
-- ARGV  its id, how many, the event that says so, prefix of heads, prefix of runs, how long to keep the set of its
--       runs (ms)
-- Reply the runs that it has now

local unowned, owned = unpack(KEYS)
local id, at_most, event, heads, streams, ttl_ms = unpack(ARGV)
local has_ended = {done = true, failed = true, cancelled = true}

local adopted = {}
for _, run in ipairs(redis.call('SPOP', unowned, at_most)) do
    local state = redis.call('HGET', heads .. run, 'state')
    if state and not has_ended[state] and redis.call('EXISTS', streams .. run) == 1 then
        redis.call('HSET', heads .. run, 'owner', id)
        redis.call('SADD', owned, run)
        redis.call('XADD', streams .. run, '*', 'e', event)
        adopted[#adopted + 1] = run
    end
end
redis.call('PEXPIRE', owned, ttl_ms)
return adopted
