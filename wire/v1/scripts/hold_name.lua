-- Takes a worker's name, or keeps it.
--
-- KEYS  the name
-- ARGV  who holds it, for how long (ms)
-- Reply 0 if another one has it, else 1

local name = KEYS[1]
local holder, ttl_ms = ARGV[1], ARGV[2]

local present = redis.call('GET', name)
if present and present ~= holder then return 0 end
redis.call('SET', name, holder, 'PX', ttl_ms)
return 1
