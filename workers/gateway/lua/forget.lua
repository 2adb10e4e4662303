-- Forgets an attempt that has ended: its consumer, if it holds nothing any more, and its lease.
--
-- KEYS  the message's stream, the attempt's lease
-- ARGV  group, the attempt

local stream, lease, group, attempt = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local held = redis.pcall('XPENDING', stream, group, '-', '+', 1, attempt)
if not held.err and #held == 0 then
    redis.pcall('XGROUP', 'DELCONSUMER', stream, group, attempt)
    redis.call('DEL', lease)
end
