-- Gives unowned runs to an orchestrator, which then writes into each that it is its own, if it believes what is stored.
--
-- KEYS  the unowned runs of its model, its runs
-- ARGV  its id, how many, prefix of heads, prefix of runs, how long to keep the set of its runs (ms)
-- Reply the runs that it has now

local unowned, owned = unpack(KEYS)
local id, at_most, heads, streams, ttl_ms = unpack(ARGV)
local has_ended = {done = true, failed = true, cancelled = true}

local adopted = {}
for _, run in ipairs(redis.call('SPOP', unowned, at_most)) do
    local state = redis.call('HGET', heads .. run, 'state')
    if state and not has_ended[state] and redis.call('EXISTS', streams .. run) == 1 then
        redis.call('HSET', heads .. run, 'owner', id)
        redis.call('SADD', owned, run)
        adopted[#adopted + 1] = run
    end
end
redis.call('PEXPIRE', owned, ttl_ms)
return adopted
