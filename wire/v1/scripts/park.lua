-- Puts messages that `consumer` holds back where any worker takes them first, in their old order.
-- What it no longer holds is left alone, and where the whole stream is gone it holds nothing. `uncounted` of 1: the delivery never came to a start and does not count.
--
-- KEYS  one stream
-- ARGV  group, consumer, returned, uncounted, ids…

local stream, group, consumer, returned, uncounted = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local parked = 0
for i = 5, #ARGV do
    local pending = redis.pcall('XPENDING', stream, group, ARGV[i], ARGV[i], 1, consumer)
    if pending.err then
        if string.find(pending.err, 'NOGROUP', 1, true) then break end
        return pending
    end
    local held = pending[1]
    if held then
        local deliveries = math.max(0, held[4] - uncounted)
        redis.call('XCLAIM', stream, group, returned, 0, ARGV[i], 'RETRYCOUNT', deliveries, 'JUSTID')
        parked = parked + 1
    end
end
return parked
