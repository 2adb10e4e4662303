-- Ends a call's search for an answer, and has those that wait for it delivered now: all of them if it was found, one
-- otherwise, which tries next; up to 200 at a time. Begins with clock.lua.
--
-- KEYS  who finds the answer, the messages that wait for it, the queue's scheduled messages
-- ARGV  the call, 1 if the answer is kept, 1 to go on where the script has told that there are more
-- Reply 1 if there are more

local finder, waiting, scheduled = KEYS[1], KEYS[2], KEYS[3]
local call, is_kept, goes_on = ARGV[1], ARGV[2] == '1', ARGV[3] == '1'
local AT_ONCE = 200

if not goes_on then
    local found = redis.pcall('HGET', finder, 'call')
    if found ~= call and type(found) ~= 'table' then return 0 end
    redis.call('DEL', finder)
end
-- Anybody may have written here.
if redis.call('TYPE', waiting).ok ~= 'set' then redis.call('DEL', waiting) end
local now = now_ms()
for _ = 1, AT_ONCE do
    local message = redis.call('SPOP', waiting)
    if not message then return 0 end
    -- One that came up by itself meanwhile is no longer there, and is not brought back.
    if redis.pcall('ZADD', scheduled, 'XX', 'CH', now, message) == 1 and not is_kept then return 0 end
end
return redis.call('EXISTS', waiting)
