-- Lets one call at a time find the answer to a question, and has calls that ask the same wait in their queue's scheduled
-- set, where no worker has them and they hold no place of a limit. Begins with clock.lua, gates.lua, room.lua and
-- carry.lua. These calls may be repeated, so they have no claims.
--
-- KEYS  what is kept of the answer, who finds it (hash: call, stream, entry), the messages that wait for it, the message's
--       stream, the queue's scheduled messages
-- ARGV  group, consumer, the message's id, its call, the queue's stream, how long it waits at most in ms, its deadline in
--       ms, its gates
-- Reply {'kept', answer}, {'finds'}, {'waits'}, or {'lost'} if the message is not the consumer's any more

local kept, finder, waiting, stream, scheduled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, consumer, id, call, home = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local pause_ms, deadline_ms, gates = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local FORGOTTEN_AFTER_MS = 3600000
local PLACE_AGAIN_MS = 200

local room = room_of(stream)

local function wait(for_ms)
    local held = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)[1]
    local entry = held and redis.call('XRANGE', stream, id, id)[1]
    if not entry then return {'lost'} end
    local fields = carried(id, entry[2], math.max(0, held[4] - 1))
    local message = cjson.encode({home, unpack(fields)})
    redis.call('ZADD', scheduled, math.min(now_ms() + for_ms, deadline_ms), message)
    redis.call('SADD', waiting, message)
    redis.call('PEXPIREAT', waiting, string.format('%.0f', deadline_ms + FORGOTTEN_AFTER_MS))
    redis.call('XACK', stream, group, id)
    redis.call('XDEL', stream, id)
    if gates ~= '' and room then
        free(room, gates, call)
        admit(room, 1)
    end
    return {'waits'}
end

-- One that waited has no places any more; to find the answer itself it takes them again. False where one is not free.
local function has_places()
    local wanted = {}
    for _, gate in ipairs(room and gates_in(gates) or {}) do
        local holders = gate[1] == 'concurrency' and terms_of(room.namespace, gate).holders
        if holders and redis.call('HEXISTS', holders, call) == 0 then
            if room_at(room.namespace, gate, now_ms(), call) < 1 then return false end
            wanted[#wanted + 1] = holders
        end
    end
    for _, holders in ipairs(wanted) do redis.call('HSET', holders, call, stream .. ' ' .. id) end
    return true
end

local answer = redis.call('GET', kept)
if answer then return {'kept', answer} end

local found = redis.call('HMGET', finder, 'call', 'stream', 'entry')
-- Its message is there from when it is sent until it is settled, buried or purged, and comes to another worker when its
-- own is lost: as long as it is there the call goes on, whoever has it.
if found[1] and found[1] ~= call and #redis.call('XRANGE', found[2], found[3], found[3]) > 0 then return wait(pause_ms) end
if not has_places() then return wait(PLACE_AGAIN_MS) end
redis.call('HSET', finder, 'call', call, 'stream', stream, 'entry', id)
redis.call('PEXPIREAT', finder, string.format('%.0f', deadline_ms + FORGOTTEN_AFTER_MS))
return {'finds'}
