-- Ends a job with a result from outside, whoever asks about it meanwhile. Begins with tell.lua and the function
-- `waiting_room`, which has what is in room.lua.
--
-- KEYS  its hash, the result of its call, the mark of the call's job that has ended
-- ARGV  prefix of results, its schedule, the reply stream, call, sealed result, which job of the call it is (empty: the
--       caller saw none), when the mark ends (unix ms)
-- Reply 0 without such a job or result, 1 if this result counted, 2 if the call had one

local job, result, ended = unpack(KEYS)
local results, schedule, replies, call, sealed, name, ends_ms = unpack(ARGV)

if name == '' or redis.call('EXISTS', job) == 0 then return redis.call('EXISTS', result) * 2 end
-- It has ended, and somebody has brought it back.
if redis.pcall('GET', ended) == name then return 2 end
local outcome = settle(results, call, sealed, replies)
redis.call('EXPIRE', replies, REPLIES_TTL_S)
redis.call('SET', ended, name, 'PXAT', ends_ms)
waiting_room()(job, call)
redis.call('DEL', job)
redis.call('ZREM', schedule, call)
return outcome
