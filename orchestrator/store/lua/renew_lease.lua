-- Renews an orchestrator's lease, and tells which leases have lapsed. Begins with clock.lua.
--
-- KEYS  the orchestrators, its lease, its runs, the list of all runs, its proofs, its beat
-- ARGV  its id, lease (ms), how long to keep the set of its runs (ms), prefix of heads, the model whose runs it adopts,
--       the proofs of its secret, the number of this beat, how long it is kept (s)
-- Reply the orchestrators whose lease has lapsed, a hundred at most; the beat before this one, and which server this is

local orchestrators, lease, owned, runs, proofs, beats = unpack(KEYS)
local id, lease_ms, ttl_ms, heads, model, shown, beat, beat_ttl_s = unpack(ARGV)

local now = now_ms()
redis.call('ZADD', orchestrators, now + lease_ms, id)
redis.call('SET', lease, model, 'PX', lease_ms)
redis.call('SET', proofs, shown, 'PX', lease_ms)
redis.call('PEXPIRE', owned, ttl_ms)
-- A few of the oldest runs each time: those whose record has ended leave the list.
for _, run in ipairs(redis.call('ZRANGE', runs, 0, 20)) do
    if redis.call('EXISTS', heads .. run) == 0 then redis.call('ZREM', runs, run) end
end
local beat_before = redis.call('GET', beats) or '0'
redis.call('SET', beats, beat, 'EX', beat_ttl_s)
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
return {redis.call('ZRANGEBYSCORE', orchestrators, '-inf', '(' .. now, 'LIMIT', 0, 100), beat_before, server}
