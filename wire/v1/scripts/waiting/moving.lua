-- How messages leave a room: those that may, in their turn, and those that nobody wants any more. Begins other scripts,
-- behind rounds.lua.

local admit, look_and_admit, is_lost
do  -- a script has no more than 200 local names at once
    -- The call of a tenant that is next: its flow, its id, its message and its tag, which a plain one has not. Forgets a flow
    -- that has none, or is none of the tenant's.
    local function next_call(room, level, tenant)
        local flow = redis.call('ZRANGE', flows_of(room, level, tenant), 0, 0)[1]
        if not flow then return nil end
        local its_level, its_tenant, _, is_plain = flow_parts(flow)
        if its_level == level and its_tenant == tenant then
            local call, message, tag
            if is_plain then message, call = plain_head(room, flow) else call, message, tag = first_of(room, level, flow) end
            if message then return flow, call, message, tag end
        end
        redis.call('ZREM', flows_of(room, level, tenant), flow)
    end

    local function forget_call(room, flow, run, call, tag, turn)
        if tag then forget(room, flow, run, call, tag) else forget_plain(room, flow, run, 1, turn) end
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
        local _, _, text = flow_parts(flow)
        local why = (tag or text ~= '') and over(room, call, message.ends_ms)
        local gates, all = gates_of(room, tenant, text)
        if why then
            send(room, message, '', why)
        else
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
        forget_call(room, flow, message.run, call, tag, times_of(room).moves + 1)
        charge(room, level, tenant, flow, start)
        take_next_turn(room, level, tenant)
        if why then leave_to_others(room, gates) end
        return 1
    end

    local function send_off(room, call)
        local message = message_in(room, LEVELS[1], redis.call('HGET', room.calls, call))
        local flow = message.flow
        local tag = flow and tag_of(redis.call('ZSCORE', line_of(room, flow), call))
        if not tag then return 0 end
        send(room, message, '', EXPIRED)
        forget(room, flow, message.run, call, tag)
        if redis.call('EXISTS', line_of(room, flow)) == 0 then forget_flow(room, flow) end
        return 1
    end

    -- Sends on what has waited past its deadline, whatever gate it waits at: a worker says so. How many. What stands among the
    -- deadlines is a call, or those of a run as the index of plain ones has them.
    local function send_off_late(room, most)
        local sent = 0
        for _, late in ipairs(redis.call('ZRANGEBYSCORE', room.ends, '-inf', now_ms(), 'LIMIT', 0, most)) do
            if sent == most then break end
            local its = redis.call('HEXISTS', room.calls, late) == 1 and send_off(room, late) or 0
            if its == 0 then its = send_off_plain(room, late, most - sent) end
            sent = sent + its
            room.moved = room.moved or its > 0
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
        local moved, looks, are_plain, is_odd = 0, 0, true, false
        while moved < most and looks < LOOKS_MAX + most do
            local level, tenant, start = next_turn(room)
            if not level then break end
            room.moved = true
            local together = 0
            if are_plain and not is_odd then together, is_odd = move_plain(room, level, most - moved) end
            if together == 0 then
                together = move_one(room, level, tenant, start)
                are_plain, is_odd = is_odd or together == 0, false
            end
            moved = moved + together
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
