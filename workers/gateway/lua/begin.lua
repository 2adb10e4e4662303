-- Begins the attempt at a call that was offered: from now on the entry is the attempt's own, which has a lease.
--
-- KEYS  the message's stream, the attempt's lease
-- ARGV  group, to whom it was offered, the attempt, entry, its deliveries then, how long the lease holds (ms)
-- Reply 1 it has begun, now or before; 0 it is not on offer to that one any more

local stream, lease = KEYS[1], KEYS[2]
local group, offered, attempt, id, deliveries, lease_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

local held = redis.pcall('XPENDING', stream, group, id, id, 1)
if held.err or not held[1] then return 0 end
local owner, counted = held[1][2], held[1][4]
if owner ~= attempt then
    if owner ~= offered or counted ~= deliveries then return 0 end
    if #redis.call('XCLAIM', stream, group, attempt, 0, id, 'JUSTID') == 0 then return 0 end
end
redis.call('SET', lease, 'alive', 'PX', lease_ms)
return 1
