-- Stores where a run is told of, if there is the run and room for it; and has somebody look whether it has something to tell
-- already. Begins with clock.lua.
--
-- KEYS  the run's head, its configurations, the tasks of its tenant that have some, the tenants with such tasks, the tasks
--       that are to be looked at
-- ARGV  the run, its tenant, the configuration's id, what stands before one of which nothing was told, the configuration,
--       sealed, how many a task may have, how many tasks a tenant may have
-- Reply kept, gone (no such run), task or tenant (whose room is used up)

local head, pushes, pushing, tenants, due = unpack(KEYS)
local run, tenant, config, untold, sealed, most, most_tasks = unpack(ARGV)

local ttl_ms = redis.call('PTTL', head)
if ttl_ms < 0 then return 'gone' end
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', pushing, '-inf', now)
if redis.call('HEXISTS', pushes, config) == 0 and redis.call('HLEN', pushes) >= tonumber(most) then return 'task' end
if not redis.call('ZSCORE', pushing, run) and redis.call('ZCARD', pushing) >= tonumber(most_tasks) then
    return 'tenant'
end
redis.call('HSET', head, 'push', '1')
redis.call('HSET', pushes, config, untold .. sealed)
redis.call('PEXPIRE', pushes, ttl_ms)
redis.call('ZADD', pushing, now + ttl_ms, run)
redis.call('ZADD', tenants, 'GT', now + ttl_ms, tenant)
for _, key in ipairs({pushing, tenants}) do
    if redis.call('PTTL', key) < ttl_ms then redis.call('PEXPIRE', key, ttl_ms) end
end
redis.call('ZADD', due, now, run)
return 'kept'
