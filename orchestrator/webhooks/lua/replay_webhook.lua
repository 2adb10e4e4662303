-- Makes a webhook that was given up due now, as if it had never been sent. Begins with clock.lua.
--
-- KEYS  the due ones, the webhook, those of its tenant that were given up
-- ARGV  its id, how long it is kept (ms)
-- Reply whether it was there

local due, webhook, dead = unpack(KEYS)
local id, keep_ms = unpack(ARGV)

if redis.call('ZREM', dead, id) == 0 or redis.call('HEXISTS', webhook, 'm') == 0 then return 0 end
redis.call('HDEL', webhook, 'n')
redis.call('PEXPIRE', webhook, keep_ms)
redis.call('ZADD', due, now_ms(), id)
return 1
