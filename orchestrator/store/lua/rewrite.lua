-- Puts the same history in another form in a stream's place, unless it has changed since it was read. Who waits for news
-- of the run goes on waiting.
--
-- KEYS  the run's stream, where the other form is put together
-- ARGV  seal of the newest entry, how many entries there are, then each new one: id, how many fields and values, these
-- Reply 1, or 0 if the stream has changed

local stream, room = KEYS[1], KEYS[2]
local seal, entries = ARGV[1], tonumber(ARGV[2])

local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
if not newest or redis.call('XLEN', stream) ~= entries then return 0 end
for i = 1, #newest[2], 2 do
    if newest[2][i] == 's' and newest[2][i + 1] ~= seal then return 0 end
end
local left_ms = redis.call('PTTL', stream)
local at = 3
while ARGV[at] do
    local id, fields = ARGV[at], tonumber(ARGV[at + 1])
    redis.call('XADD', room, id, unpack(ARGV, at + 2, at + 1 + fields))
    at = at + 2 + fields
end
if left_ms > 0 then redis.call('PEXPIRE', room, left_ms) end
-- A stream keeps room for what comes (4 KB); a copy of one has no more than it needs.
redis.call('COPY', room, stream, 'REPLACE')
redis.call('DEL', room)
return 1
