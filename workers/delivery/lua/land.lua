-- Ends a call's search for an answer, and has those that wait for it delivered now: all of them if it was found, one
-- otherwise, which tries next. Begins with clock.lua.
--
-- KEYS  who finds the answer, the messages that wait for it, the queue's scheduled messages
-- ARGV  the call, 1 if the answer is kept
-- Reply how many are delivered now

local finder, waiting, scheduled = KEYS[1], KEYS[2], KEYS[3]
local call, is_kept = ARGV[1], ARGV[2] == '1'

if redis.call('HGET', finder, 'call') ~= call then return 0 end
redis.call('DEL', finder)
local now, woken = now_ms(), 0
while is_kept or woken == 0 do
    local message = redis.call('SPOP', waiting)
    if not message then break end
    -- One that came up by itself meanwhile is no longer there, and is not brought back.
    if redis.call('ZSCORE', scheduled, message) then
        redis.call('ZADD', scheduled, now, message)
        woken = woken + 1
    end
end
return woken
