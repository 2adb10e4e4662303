-- Takes the webhooks that are due, of each endpoint so many at most; what is left of one is put off for a moment, so that
-- it stands in nobody's way. Each comes up again by itself when its sender is lost: it is due anew once the lease has
-- ended. Begins with clock.lua.
--
-- KEYS  the due ones
-- ARGV  how many at most, the lease (ms), the prefix of webhooks, how many are looked at, how many of one endpoint are sent
--       at once, for how long others are put off (ms); then the endpoints that are being sent to, and how many each
-- Reply for each: its id, its fence, how often it was sent, and what is to be sent, sealed; then how long until the next
--       is due (ms), -1 for none

local due = KEYS[1]
local most, lease_ms, prefix, looked_at, at_once, put_off_ms = unpack(ARGV, 1, 6)

local busy = {}
for at = 7, #ARGV, 2 do busy[ARGV[at]] = tonumber(ARGV[at + 1]) end
local now = now_ms()
local taken = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, looked_at)) do
    if #taken >= tonumber(most) then break end
    local endpoint = string.match(id, '%.([^.]*)$') or ''
    local count = busy[endpoint] or 0
    -- Called so that one of another type, which is nobody's of ours, holds up no other.
    local found = redis.pcall('HMGET', prefix .. id, 'm', 'n')
    if found.err or not found[1] then
        redis.call('ZREM', due, id)
    elseif count >= tonumber(at_once) then
        redis.call('ZADD', due, now + put_off_ms, id)
    else
        busy[endpoint] = count + 1
        redis.call('ZADD', due, now + lease_ms, id)
        local fence = redis.pcall('HINCRBY', prefix .. id, 'fence', 1)
        if type(fence) == 'number' then taken[#taken + 1] = {id, fence, found[2] or '0', found[1]} end
    end
end
local next_one = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
return {taken, next_one[2] and math.max(0, math.ceil(next_one[2] - now)) or -1}
