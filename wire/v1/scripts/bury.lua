-- Moves messages to the dead letters, in one step with their acknowledgement, and frees the places that they had for those
-- that wait.
-- Begins with clock.lua, gates.lua and room.lua.
--
-- KEYS  one stream, the dead letters, the counters
-- ARGV  group, greatest number of dead letters, queue, greatest size of a field, then an id and its reason in turn

local stream, dead, counters = KEYS[1], KEYS[2], KEYS[3]
local group, kept, queue, field_bytes = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local freed = {}
for i = 5, #ARGV, 2 do
    local id, reason = ARGV[i], ARGV[i + 1]
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if entry then
        local letter = {'queue', queue, 'stream', stream, 'entry', id, 'reason', reason}
        for j = 1, #entry[2], 2 do
            letter[#letter + 1] = 'raw:' .. entry[2][j]
            letter[#letter + 1] = string.sub(entry[2][j + 1], 1, field_bytes)
        end
        redis.call('XADD', dead, 'MAXLEN', '~', kept, '*', unpack(letter))
        redis.call('HINCRBY', counters, 'dead_letters', 1)
        local gates, call = field_of(entry[2], 'gates'), field_of(entry[2], 'id')
        local room = room_of(stream)
        if room and gates and call then
            safely(room, free, gates, call, stream .. ' ' .. id)
            freed[room] = (freed[room] or 0) + 1
        end
    end
    redis.call('XACK', stream, group, id)
    redis.call('XDEL', stream, id)
end
for room, count in pairs(freed) do safely(room, admit_free, count) end
