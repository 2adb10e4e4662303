-- Deletes all messages that wait in a queue's room and their order, and tells how many they were. Memory is freed in
-- the background, so this is quick for many of them, too.
-- Begins with clock.lua, gates.lua and room.lua.
--
-- KEYS  one of the queue's streams

local room = room_of(KEYS[1])
if not room then return 0 end

local function forget_flows(flows)
    for _, flow in ipairs(flows) do redis.call('UNLINK', line_of(room, flow)) end
end

local function forget_order()
    for _, level in ipairs(LEVELS) do
        for _, tenant in ipairs(redis.call('ZRANGE', turns_of(room, level), 0, -1)) do
            forget_flows(redis.call('ZRANGE', flows_of(room, level, tenant), 0, -1))
            redis.call('UNLINK', flows_of(room, level, tenant))
        end
        redis.call('UNLINK', turns_of(room, level), shares_of(room, level))
    end
    for _, gate in ipairs(redis.call('ZRANGE', room.openings, 0, -1)) do
        forget_flows(redis.call('ZRANGE', aside_at(room, gate), 0, -1))
        redis.call('UNLINK', aside_at(room, gate))
    end
    redis.call('UNLINK', room.openings, room.runs, room.calls)
    redis.call('HDEL', room.state, 'moves', unpack(LEVELS))
end

local calls = redis.call('HLEN', room.calls)
forget_order()
return calls
