-- A consumer's word that it reads a lane, which holds for so long.
--
-- KEYS  the lane's readers, the lanes of its queue
-- ARGV  lane, consumer, how long in ms

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[1], now_ms + ARGV[3], ARGV[2])
redis.call('PEXPIRE', KEYS[1], 2 * ARGV[3])
