-- How messages leave a room: those that may, in their turn, and those that nobody wants any more. Begins other scripts,
-- behind alone.lua.

local admit, look_and_admit, is_lost
do  -- a script has no more than 200 local names at once
    -- The call of a tenant that is next: its flow, its id, its message and its tag, which a plain one has not. Forgets a flow
    -- that has none, or is none of the tenant's.
    local function next_call(room, level, tenant)
        local flow = redis.call('ZRANGE', flows_of(room, level, tenant), 0, 0)[1]
        if not flow then return nil end
        local its_level, its_tenant, _, run = flow_parts(flow)
        if its_level == level and its_tenant == tenant then
            local call, message, tag
            if run then message, call = plain_head(room, flow) else call, message, tag = first_of(room, level, flow) end
            if message then return flow, call, message, tag end
        end
        redis.call('ZREM', flows_of(room, level, tenant), flow)
    end

    local function forget_call(room, flow, run, call, tag)
        if tag then forget(room, flow, run, call, tag) else forget_plain(room, flow, 1) end
    end

    -- Forgets a copy that waited.
    local function drop(room, level, tenant, flow, run, call, tag)
        forget_call(room, flow, run, call, tag)
        count_copy(room)
        if redis.call('EXISTS', line_of(room, flow)) == 0 then redis.call('ZREM', flows_of(room, level, tenant), flow) end
        take_next_turn(room, level, tenant)
    end

    -- Moves the next call of a tenant, if it may go. 1 or 0.
    local function move_one(room, level, tenant, start)
        local flow, call, message, tag = next_call(room, level, tenant)
        if not flow or (start == OWED and start_of(room, level, tenant) ~= OWED) then
            take_next_turn(room, level, tenant)
            return 0
        end
        local why = tag and over(room, call, message.ends_ms)
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
        forget_call(room, flow, message.run, call, tag)
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

    -- Whether calls wait of which none has a place in any order: somebody has written there.
    function is_lost(room)
        for _, level in ipairs(LEVELS) do
            if redis.call('EXISTS', turns_of(room, level)) == 1 then return false end
        end
        return redis.call('EXISTS', room.openings) == 0 and has_waiting(room)
    end

    -- Moves up to `most` messages that are due and permitted into their streams. How many, and whether it has looked at all.
    function admit(room, most)
        if not has_waiting(room) then return 0, true end
        room.heads, room.finishes = {}, {}
        local moved, looks, is_plain, is_alone = 0, 0, true, true
        while moved < most and looks < LOOKS_MAX + most do
            local level, tenant, start = next_turn(room)
            if not level then break end
            room.moved = true
            local together = is_plain and move_plain(room, level, most - moved) or 0
            is_plain = together > 0
            is_alone = is_alone and (is_plain or (start ~= OWED and is_lone(room, level, tenant)))
            if is_alone and not is_plain then together = move_many(room, level, tenant, start, most - moved) end
            moved = moved + (together > 0 and together or move_one(room, level, tenant, start))
            looks = looks + 1
        end
        keep(room)
        if looks == 0 and is_lost(room) then error('nobody has a turn', 0) end
        return moved, looks < LOOKS_MAX + most
    end

    -- The same, behind what time has changed: deadlines, gates that have opened, what people have said.
    function look_and_admit(room, most)
        if not has_waiting(room) then return 0, true end
        room.heads, room.finishes = {}, {}
        hear_of_limits(room)
        local sent = send_off_late(room, most)
        reopen_due(room)
        local moved, is_all = admit(room, most - sent)
        keep(room)
        return sent + moved, is_all
    end
end
