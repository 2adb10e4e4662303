-- Marks a job as one to cancel, and has it asked about at once. Begins with clock.lua.
--
-- KEYS  its hash, the cancel mark of its call, the schedule of its tool
-- ARGV  call, when the mark ends (unix ms), the mark, sealed
-- Reply 0 without such a job, else 1

local job, mark, schedule = KEYS[1], KEYS[2], KEYS[3]
local call, ends_ms, said = ARGV[1], ARGV[2], ARGV[3]

if redis.call('EXISTS', job) == 0 then return 0 end
redis.call('SET', mark, said, 'PXAT', ends_ms)
local now = now_ms()
local held_until = tonumber(redis.call('HGET', job, 'until') or 0)
-- Whoever asks about the job right now sees the mark when it is done: two must not deal with one job at a time.
if held_until <= now then redis.call('ZADD', schedule, now, call) end
return 1
