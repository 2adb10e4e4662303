-- Takes a configuration away. Without any, the run is as it was before it had one.
--
-- KEYS  the run's head, its configurations, the tasks of its tenant that have some
-- ARGV  the run, the configuration's id
-- Reply whether it was there

local head, pushes, pushing = unpack(KEYS)
local run, config = unpack(ARGV)

local dropped = redis.call('HDEL', pushes, config)
if redis.call('EXISTS', pushes) == 0 then
    redis.call('HDEL', head, 'push')
    redis.call('ZREM', pushing, run)
end
return dropped
