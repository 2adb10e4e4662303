-- Notes what came of sending a webhook, unless somebody else has taken it meanwhile. Begins with clock.lua.
--
-- KEYS  the due ones, the webhook, the attempts at its endpoint, those of its tenant that were given up
-- ARGV  its id, its fence, what is to be done with it (over, again or dead), after how long again (ms), what is to
--       be sent, sealed, the attempt, sealed (empty for none), how many attempts are kept, how long anything is kept (ms),
--       how many are kept that were given up, the prefix of webhooks
-- Reply whether it was still ours

local due, webhook, attempts, dead = unpack(KEYS)
local id, fence, what, wait_ms, text, attempt, attempts_max, keep_ms, dead_max, prefix = unpack(ARGV)

if redis.call('HGET', webhook, 'fence') ~= fence then return 0 end
local now = now_ms()
if attempt ~= '' then
    redis.call('LPUSH', attempts, attempt)
    redis.call('LTRIM', attempts, 0, attempts_max - 1)
    redis.call('PEXPIRE', attempts, keep_ms)
    redis.call('HINCRBY', webhook, 'n', 1)
    redis.call('HSET', webhook, 'last', attempt)
end
if what == 'over' then
    redis.call('ZREM', due, id)
    redis.call('UNLINK', webhook)
elseif what == 'dead' then
    redis.call('ZREM', due, id)
    redis.call('HSET', webhook, 'm', text)
    redis.call('PEXPIRE', webhook, keep_ms)
    redis.call('ZADD', dead, now, id)
    redis.call('PEXPIRE', dead, keep_ms)
    for _, old in ipairs(redis.call('ZRANGE', dead, 0, -dead_max - 1)) do
        redis.call('UNLINK', prefix .. old)
        redis.call('ZREM', dead, old)
    end
else
    redis.call('HSET', webhook, 'm', text)
    redis.call('PEXPIRE', webhook, wait_ms + keep_ms)
    redis.call('ZADD', due, now + wait_ms, id)
end
return 1
