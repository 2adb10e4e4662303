-- Passes a message that `consumer` holds and cannot run to a lane whose readers can, or lets it wait a moment for the
-- queue. This delivery does not count.
--
-- KEYS  the message's stream, the queue's scheduled messages, then for each lane, best first: its readers, its stream
-- ARGV  group, consumer, id, the queue's stream, pause in ms (0: rather keep it), how long it may wait for somebody who
--       can run it in ms (-1: there is somebody), its deadline in ms, claim prefix
-- Reply 0 it is not the consumer's any more, 1 it has gone to a lane, 2 it waits, 3 it is still the consumer's

local stream, scheduled = KEYS[1], KEYS[2]
local group, consumer, id, home = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local pause_ms, patience_ms, deadline_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local claim_prefix = ARGV[8]
local LEFT_ALONE_MS = 60000

local held = redis.call('XPENDING', stream, group, id, id, 1, consumer)[1]
local entry = held and redis.call('XRANGE', stream, id, id)[1]
if not entry then return 0 end

local now = now_ms()
local kept, unserved_ms = carried(id, entry[2], math.max(0, held[4] - 1))

local function let_go()
    redis.call('XACK', stream, group, id)
    redis.call('XDEL', stream, id)
end

for i = 3, #KEYS, 2 do
    if redis.call('ZCOUNT', KEYS[i], now, '+inf') > 0 then
        local to = redis.call('XADD', KEYS[i + 1], '*', unpack(kept))
        move_claim(claim_prefix, kept, id, to, KEYS[i + 1] .. ' ' .. to)
        let_go()
        return 1
    end
end
if pause_ms == 0 or now + pause_ms >= deadline_ms then return 3 end
if patience_ms >= 0 then
    unserved_ms = unserved_ms or now
    if now + pause_ms > unserved_ms + patience_ms then return 3 end
    kept[#kept + 1] = 'unserved'
    kept[#kept + 1] = string.format('%d', unserved_ms)
end
kept[#kept + 1] = 'held_as'
kept[#kept + 1] = '@' .. id
-- Its places are kept until somebody makes it due, or all readers are gone.
move_claim(claim_prefix, kept, id, '@' .. id, string.format('until %.0f', now + pause_ms + LEFT_ALONE_MS))
redis.call('ZADD', scheduled, now + pause_ms, cjson.encode({home, unpack(kept)}))
let_go()
return 2
