-- Owes webhooks of a question that a tool asks, unless somebody has done so. Begins with clock.lua and owe.lua.
--
-- KEYS  the questions that webhooks were made of, the due ones, then the webhooks
-- ARGV  the question, when it expires (ms), how long a webhook is kept (ms), then the id and what is to be sent, sealed,
--       of each webhook
-- Reply how many are owed now

local asked, due = unpack(KEYS)
local question, expires_ms, keep_ms = unpack(ARGV)

local now = now_ms()
redis.call('ZREMRANGEBYSCORE', asked, '-inf', now)
if redis.call('ZADD', asked, 'NX', expires_ms, question) == 0 then return 0 end
redis.call('PEXPIREAT', asked, redis.call('ZRANGE', asked, -1, -1, 'WITHSCORES')[2])
owe(due, now, keep_ms, KEYS, 3, ARGV, 4)
return #KEYS - 2
