-- How messages leave a room: those that may, in their turn, and those that nobody wants any more. Begins other scripts,
-- behind aside.lua.

-- Why nobody wants a call any more, if so. Its worker ends it by this word; it need not pass any gate for that.
local EXPIRED, WAS_CANCELLED = 'expired', 'cancelled'
local function has_expired(ends_ms) return ends_ms > 0 and ends_ms <= now_ms() and EXPIRED or nil end
local function is_cancelled(room, call)
    return redis.call('EXISTS', room.namespace .. CANCELLED .. call) == 1 and WAS_CANCELLED or nil
end
local function over(room, call, ends_ms) return has_expired(ends_ms) or is_cancelled(room, call) end

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

-- The flow that waits alone, at no gate: the only one of the only tenant. What waits in it goes in the order of its line.
local function lone_flow(room, level, tenant)
    for _, other in ipairs(LEVELS) do
        if redis.call('ZCARD', turns_of(room, other)) ~= (other == level and 1 or 0) then return nil end
    end
    if gate_of_tenant(room, tenant) or redis.call('ZCARD', flows_of(room, level, tenant)) ~= 1 then return nil end
    local flow = redis.call('ZRANGE', flows_of(room, level, tenant), 0, 0)[1]
    local _, _, text = flow_parts(flow)
    return text == '' and flow or nil
end

-- Whether any of these calls was cancelled, seldom as that is: asked once for all of them.
local function is_any_cancelled(room, calls)
    local marks = {}
    for i, call in ipairs(calls) do marks[i] = room.namespace .. CANCELLED .. call end
    return redis.call('EXISTS', unpack(marks)) > 0
end

-- Moves many calls of a flow that waits alone: the same as to move one after the other, with a fraction of the commands.
-- How many.
local MANY_MAX = 500
local function move_many(room, level, tenant, flow, start, most)
    local line = line_of(room, flow)
    local heads = redis.call('ZRANGE', line, 0, math.min(most, MANY_MAX) - 1, 'WITHSCORES')
    local calls, tags = {}, {}
    for i = 1, #heads, 2 do
        calls[#calls + 1] = heads[i]
        tags[#tags + 1] = tag_of(heads[i + 1])
    end
    if #calls == 0 then return 0 end
    local packed = redis.call('HMGET', room.calls, unpack(calls))
    local may_be_cancelled = is_any_cancelled(room, calls)
    local last_tags = {}
    for i, call in ipairs(calls) do
        local message = message_in(room, level, packed[i])
        send(room, message, '', has_expired(message.ends_ms) or (may_be_cancelled and is_cancelled(room, call)) or nil)
        last_tags[flow .. ' ' .. message.run] = tags[i]
    end
    redis.call('HDEL', room.calls, unpack(calls))
    redis.call('ZREM', room.ends, unpack(calls))
    redis.call('ZREMRANGEBYRANK', line, 0, #calls - 1)
    room.waiting = waiting_in(room) - #calls
    for field, tag in pairs(last_tags) do forget_run(room, field, tag) end
    local weight = terms_of_tenant(room, tenant).weight
    for _ = 2, #calls do start = start + 1 / weight end
    times_of(room).moves = times_of(room).moves + #calls - 1
    charge(room, level, tenant, flow, start)
    take_next_turn(room, level, tenant)
    return #calls
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
        if flow then
            moved = moved + move_many(room, level, tenant, flow, start, most - moved)
        else
            moved = moved + move_one(room, level, tenant, start)
        end
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
