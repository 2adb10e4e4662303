-- Writes an event down behind the entry that it follows, and with it all that is known of the run without reading it.
-- Refused when that entry is not the newest one: somebody else was first, or the store came back older. Entries are told
-- apart by their seals and not by their ids, which a server that has lost some may give out again. Begins with tell.lua,
-- clock.lua and trim_runs.lua.
--
-- KEYS  the run's stream, its head, the list of all runs, the runs of its tenant (the list of all runs without one), those
--       of its tenant with calls that wait for a person, where runs stand by state, and for an entry that begins or ends
--       the run or passes it on: the unowned runs of its model, the ends of runs, their names; for a reply with calls: the
--       names that the model has given these
-- ARGV  seal of the entry it follows (empty for the first), event, its seal, state, how long to keep it (ms), turn, how
--       many calls, how many of them wait for a person, its place among all by state, run id; and for an entry that begins
--       or ends the run or passes it on: whether it has ended (1 or 0), run id again, owner (empty: as it is), whether
--       anybody may take it over (1 or 0), the call whose result this run is (empty for none), its sealed result, prefix of
--       results, prefix of reply streams, prefix of owned runs, prefix of heads, prefix of tenants' lists, prefix of
--       configurations of pushes, the runs that have something to push, its tenant, then fields and values for the head; for
--       a reply with calls: empty, how long their names are kept (ms), then the calls
-- Reply the new entry's id and, if this run is the result of a call, what came of that (1: it counts, 2: there was one);
--       or false

local stream, head, runs, listed, approvals, states, unowned, ending, names = unpack(KEYS, 1, 9)
local follows, event, seal, state, ttl_ms, turn, calls, awaiting, place = unpack(ARGV, 1, 9)
local names_calls = ARGV[11] == ''
local last_argument = names_calls and 10 or #ARGV
local has_ended, run, owner, may_be_adopted, parent, sealed = unpack(ARGV, 11, math.min(16, last_argument))
local results, reply_streams, owned, heads, runs_of, pushes, pushes_due, tenant =
    unpack(ARGV, 17, math.min(24, last_argument))
local first_field = 25

local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
local stands = newest == nil and follows == ''
for i = 1, newest and #newest[2] or 0, 2 do
    if newest[2][i] == 's' then stands = follows ~= '' and newest[2][i + 1] == follows end
end
if not stands then return false end
local id = redis.call('XADD', stream, '*', 'e', event, 's', seal)
local now = now_ms()
redis.call('HSET', head, 'state', state, 'updated_ms', now, 'turn', turn, 'calls', calls, 'awaiting', awaiting,
    unpack(ARGV, first_field, last_argument))
redis.call('ZADD', states, place, ARGV[10])
redis.call('PEXPIRE', stream, ttl_ms)
redis.call('PEXPIRE', head, ttl_ms)
if not newest then
    -- Of runs with one score the list would be in the order of their ids: no two scripts see one microsecond.
    local time = redis.call('TIME')
    local begun_us = time[1] * 1000000 + time[2]
    redis.call('ZADD', runs, begun_us, run)
    redis.call('ZADD', listed, begun_us, run)
    redis.call('ZADD', names, 0, noted(run, tenant))
    trim_runs(ending, runs, names, states, runs_of, heads, now, 2)
end
-- Other events only put the end off, which whoever trims the lists finds out.
if not newest or has_ended == '1' then redis.call('ZADD', ending, now + ttl_ms, noted(run, tenant)) end
if listed ~= runs and redis.call('PTTL', listed) < tonumber(ttl_ms) then
    redis.call('PEXPIRE', listed, ttl_ms)
end
-- The owner is written when a run begins or is adopted; other events leave it as it is, whoever writes them.
if owner and owner ~= '' then
    redis.call('HSET', head, 'owner', owner)
    redis.call('SREM', unowned, run)
    redis.call('SADD', owned .. owner, run)
    redis.call('PEXPIRE', owned .. owner, ttl_ms)
end
for i = 13, names_calls and #ARGV or 0 do
    redis.call('SET', KEYS[i - 6], ARGV[i], 'PX', ARGV[12])
end
if awaiting ~= '0' then
    redis.call('ZADD', approvals, now, ARGV[10])
    redis.call('PEXPIRE', approvals, ttl_ms)
end
local outcome = 0
if has_ended == '1' then
    local last_owner, is_pushed = unpack(redis.call('HMGET', head, 'owner', 'push'))
    if last_owner then redis.call('SREM', owned .. last_owner, run) end
    if is_pushed then
        redis.call('ZADD', pushes_due, now, run)
        redis.call('PEXPIRE', pushes .. run, ttl_ms)
    end
    redis.call('HDEL', head, 'owner')
    -- With the end itself, so that no crash can come between: the parent would wait for a run that has ended.
    if parent ~= '' then outcome = settle(results, parent, sealed, reply_streams .. 'nobody') end
elseif may_be_adopted == '1' then
    redis.call('SADD', unowned, run)
    redis.call('PEXPIRE', unowned, ttl_ms)
end
return {id, outcome}
