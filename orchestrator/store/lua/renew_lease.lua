-- Renews an orchestrator's lease, and tells which leases have lapsed. Begins with clock.lua and trim_runs.lua.
--
-- KEYS  the orchestrators, its lease, its runs, the list of all runs, their ends, their names, their
--       states, its proofs, its beat
-- ARGV  its id, lease (ms), how long to keep the set of its runs (ms), prefix of heads, prefix of tenants' lists, how many
--       runs leave the lists at most, the model whose runs it adopts, the proofs of its secret, the number of this beat,
--       how long it is kept (s)
-- Reply the orchestrators whose lease has lapsed, a hundred at most; the beat before this one, and which server this is

local orchestrators, lease, owned, runs, ending, names, states, proofs, beats = unpack(KEYS)
local id, lease_ms, ttl_ms, heads, runs_of, at_most, model, shown, beat, beat_ttl_s = unpack(ARGV)

local now = now_ms()
redis.call('ZADD', orchestrators, now + lease_ms, id)
redis.call('SET', lease, model, 'PX', lease_ms)
redis.call('SET', proofs, shown, 'PX', lease_ms)
redis.call('PEXPIRE', owned, ttl_ms)
trim_runs(ending, runs, names, states, runs_of, heads, now, at_most)
local beat_before = redis.call('GET', beats) or '0'
redis.call('SET', beats, beat, 'EX', beat_ttl_s)
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
return {redis.call('ZRANGEBYSCORE', orchestrators, '-inf', '(' .. now, 'LIMIT', 0, 100), beat_before, server}
