-- Ends a job with a result from outside, whoever asks about it meanwhile. Begins with tell.lua.
--
-- KEYS  its hash, the result of its call
-- ARGV  prefix of results, prefix of schedules, prefix of reply streams, call, sealed result
-- Reply 0 without such a job or result, 1 if this result counted, 2 if the call had one

local job, result = KEYS[1], KEYS[2]
local results, schedules, reply_streams, call, sealed = unpack(ARGV)

local tool, reply_to = unpack(redis.call('HMGET', job, 'tool', 'to'))
if not tool then return redis.call('EXISTS', result) * 2 end
local replies = reply_streams .. reply_to
local outcome = settle(results, call, sealed, replies)
redis.call('EXPIRE', replies, REPLIES_TTL_S)
redis.call('DEL', job)
redis.call('ZREM', schedules .. tool, call)
return outcome
