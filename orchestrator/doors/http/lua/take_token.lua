-- Takes one token from a token bucket, by the server's clock. The bucket ends when it would be full again.
--
-- KEYS  the bucket
-- ARGV  tokens per second, how many it holds
-- Reply 0, or the milliseconds until there is one

local bucket = KEYS[1]
local rate, size = tonumber(ARGV[1]), tonumber(ARGV[2])

local time = redis.call('TIME')
local now_s = time[1] + time[2] / 1e6
local tokens_then, then_s = unpack(redis.call('HMGET', bucket, 'tokens', 'at_s'))
local tokens = size
if tokens_then then tokens = math.min(size, tokens_then + math.max(0, now_s - then_s) * rate) end
if tokens < 1 then return math.ceil((1 - tokens) / rate * 1000) end
redis.call('HSET', bucket, 'tokens', tostring(tokens - 1), 'at_s', string.format('%.6f', now_s))
redis.call('PEXPIRE', bucket, math.ceil(size / rate * 1000) + 1000)
return 0
