-- Takes an artifact from a run that is deleted; with the last run of the tenant that has it, its content goes too.
--
-- KEYS  its content, the run's grant, the tenant's runs that have it
-- ARGV  the run
-- Reply 1 if its content is gone, else 0

local content, grant, runs = KEYS[1], KEYS[2], KEYS[3]
local run = ARGV[1]

redis.call('UNLINK', grant)
redis.call('ZREM', runs, run)
redis.call('ZREMRANGEBYSCORE', runs, '-inf', redis.call('TIME')[1])
if redis.call('ZCARD', runs) > 0 then return 0 end
redis.call('UNLINK', content)
return 1
