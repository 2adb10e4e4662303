-- How messages leave a room: those that may, in their turn, and those that nobody wants any more. Begins other scripts,
-- behind alone.lua.

-- Forgets a copy that waited.
local function drop(room, level, tenant, flow, run, call, tag)
    forget(room, flow, run, call, tag)
    count_copy(room)
    if redis.call('EXISTS', line_of(room, flow)) == 0 then redis.call('ZREM', flows_of(room, level, tenant), flow) end
    take_next_turn(room, level, tenant)
end

-- Moves the next call of a tenant, if it may go. 1 or 0.
local function move_one(room, level, tenant, start)
    local flow, call, tag = head_of(room, level, tenant)
    if not flow or (start == OWED and start_of(room, level, tenant) ~= OWED) then
        take_next_turn(room, level, tenant)
        return 0
    end
    local message = message_in(room, level, redis.call('HGET', room.calls, call))
    local why = over(room, call, message.ends_ms)
    if why then
        send(room, message, '', why)
    else
        local _, _, text = flow_parts(flow)
        local gates, all = gates_of(room, tenant, text)
        if is_copy(room.namespace, gates, call) then
            drop(room, level, tenant, flow, message.run, call, tag)
            return 0
        end
        local shut, again_ms = first_shut(room.namespace, gates, now_ms(), call)
        if shut then
            set_aside(room, flow, start, gates, shut, again_ms)
            return 0
        end
        pass(room.namespace, gates, now_ms(), call, send(room, message, all), message.ends_ms)
    end
    forget(room, flow, message.run, call, tag)
    charge(room, level, tenant, flow, start)
    take_next_turn(room, level, tenant)
    return 1
end

local function send_off(room, call)
    local message = message_in(room, LEVELS[1], redis.call('HGET', room.calls, call))
    local flow = message.flow
    local tag = flow and tag_of(redis.call('ZSCORE', line_of(room, flow), call))
    if not tag then
        redis.call('ZREM', room.ends, call)
        return 0
    end
    send(room, message, '', EXPIRED)
    forget(room, flow, message.run, call, tag)
    if redis.call('EXISTS', line_of(room, flow)) == 0 then forget_flow(room, flow) end
    room.moved = true
    return 1
end

-- Sends on what has waited past its deadline, whatever gate it waits at: a worker says so. How many.
local function send_off_late(room, most)
    local sent = 0
    for _, call in ipairs(redis.call('ZRANGEBYSCORE', room.ends, '-inf', now_ms(), 'LIMIT', 0, most)) do
        sent = sent + send_off(room, call)
    end
    return sent
end

-- Moves up to `most` messages that are due and permitted into their streams. How many, and whether it has looked at all.
local function admit(room, most)
    if waiting_in(room) == 0 then return 0, true end
    room.heads, room.finishes = {}, {}
    local moved, looks, is_alone = 0, 0, true
    while moved < most and looks < LOOKS_MAX + most do
        local level, tenant, start = next_turn(room)
        if not level then break end
        room.moved = true
        local flow = is_alone and start ~= OWED and lone_flow(room, level, tenant)
        is_alone = flow
        local together = flow and move_many(room, level, tenant, flow, start, most - moved) or 0
        moved = moved + (together > 0 and together or move_one(room, level, tenant, start))
        looks = looks + 1
    end
    keep(room)
    return moved, looks < LOOKS_MAX + most
end

-- The same, behind what time has changed: deadlines, gates that have opened, what people have said.
local function look_and_admit(room, most)
    if waiting_in(room) == 0 then return 0, true end
    room.heads, room.finishes = {}, {}
    hear_of_limits(room)
    local sent = send_off_late(room, most)
    reopen_due(room)
    local moved, is_all = admit(room, most - sent)
    keep(room)
    return sent + moved, is_all
end
