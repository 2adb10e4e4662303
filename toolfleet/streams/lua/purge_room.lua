-- Deletes up to 1000 of the messages that wait in a queue's room, and tells how many; with the last ones also all of
-- their order. In parts, as deleting many at once would keep everybody waiting.
-- Begins with clock.lua, gates.lua and room.lua.
--
-- KEYS  one of the queue's streams

local AT_ONCE = 1000
local room = room_of(KEYS[1])
if not room then return 0 end
local removed = 0

local function forget_calls(line)
    local calls = redis.call('ZRANGE', line, 0, AT_ONCE - removed - 1)
    if #calls == 0 then return end
    removed = removed + redis.call('HDEL', room.calls, unpack(calls))
    redis.call('ZREM', room.ends, unpack(calls))
    redis.call('ZREM', line, unpack(calls))
end

local function forget_runs_of(flow)
    for _, run in ipairs(redis.call('ZRANGE', line_of(room, flow), 0, AT_ONCE)) do
        local first = math.min(plain_length(room, flow, run), AT_ONCE - removed)
        if removed == AT_ONCE then return end
        forget_plain(room, flow, run, first)
        removed = removed + first
    end
end

-- Whether nobody waits in the flow any more.
local function forget_line(flow)
    local _, _, _, is_plain = flow_parts(flow)
    if is_plain then forget_runs_of(flow) else forget_calls(line_of(room, flow)) end
    if redis.call('EXISTS', line_of(room, flow)) == 1 then return false end
    forget_flow(room, flow)
    return true
end

local function forget_lines(set)
    for _, flow in ipairs(redis.call('ZRANGE', set, 0, AT_ONCE)) do
        if removed >= AT_ONCE then return end
        if forget_line(flow) then redis.call('ZREM', set, flow) end
    end
end

for _, level in ipairs(LEVELS) do
    for _, tenant in ipairs(redis.call('ZRANGE', turns_of(room, level), 0, AT_ONCE)) do
        if removed < AT_ONCE then forget_lines(flows_of(room, level, tenant)) end
    end
end
for _, gate in ipairs(redis.call('ZRANGE', room.openings, 0, AT_ONCE)) do
    if removed < AT_ONCE then forget_lines(aside_at(room, gate)) end
end
if removed > 0 then return removed end
-- What is left has no place in any order: somebody has written over it.
removed = redis.call('HLEN', room.calls) + redis.call('ZCARD', room.plain)
for _, level in ipairs(LEVELS) do redis.call('UNLINK', turns_of(room, level), shares_of(room, level)) end
for _, index in ipairs(redis.call('ZRANGE', room.plain, 0, -1)) do
    local flow, _, list = plain_at(room, index)
    if flow then redis.call('UNLINK', list, line_of(room, flow)) end
end
redis.call('UNLINK', room.openings, room.runs, room.calls, room.plain, room.ends, room.told)
redis.call('HDEL', room.state, 'moves', PLAIN_WAITING, unpack(LEVELS))
return removed
