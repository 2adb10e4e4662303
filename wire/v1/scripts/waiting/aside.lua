-- The flows of a room that wait at a shut gate, and when to look at it again. Begins other scripts, behind lines.lua.

-- Flows that one script may find shut beside what it moves.
local LOOKS_MAX = 200

local reopen, reopen_due, hear_of_limits, set_aside, leave_to_others, gate_aside, forget_flow
do  -- a script has no more than 200 local names at once
    -- Gates that one script may look at.
    local OPENINGS_MAX = 20
    -- Gates with places are looked at one after the other, at least so far apart.
    local LOOK_EACH_MS = 5

    -- Aside, too, flows are in order of their levels first, and in each by their virtual start. That one is -1 or more.
    local LEVEL_SCORE = 2 ^ 40
    local function score_aside(level, start) return level * LEVEL_SCORE + math.min(start + 1, LEVEL_SCORE) end

    local take_aside
    do
        local function first_aside(aside, levels)
            for _, level in ipairs(levels) do
                local least, most = level * LEVEL_SCORE, (level + 1) * LEVEL_SCORE
                local flow = redis.call('ZRANGEBYSCORE', aside, least, most, 'LIMIT', 0, 1)[1]
                if flow then return flow end
            end
        end

        -- Takes flows out of those aside while several levels wait there: as with moves, one of so many times lower levels first.
        local function take_in_turn(room, name, aside, most)
            local state, flows = room.namespace .. GATE .. name, {}
            while #flows < most and redis.call('EXISTS', aside) == 1 do
                local opened = redis.pcall('HINCRBY', state, 'opened', 1)
                local flow = first_aside(aside, levels_at(type(opened) == 'number' and opened - 1 or 0))
                if not flow then break end  -- somebody has written to the set
                redis.call('ZREM', aside, flow)
                flows[#flows + 1] = flow
            end
            redis.call('PEXPIRE', state, REMEMBERED_MS)
            return flows
        end

        function take_aside(room, name, aside, most)
            local first, last = redis.call('ZRANGE', aside, 0, 0)[1], redis.call('ZRANGE', aside, -1, -1)[1]
            if flow_parts(first) ~= flow_parts(last) then return take_in_turn(room, name, aside, most) end
            local flows, popped = {}, redis.call('ZPOPMIN', aside, most)
            for i = 1, #popped, 2 do flows[#flows + 1] = popped[i] end
            return flows
        end
    end

    -- The first flow that waits aside. Whatever else stands there is removed.
    local function first_flow_aside(aside)
        for _ = 1, LOOKS_MAX do
            local flow = redis.call('ZRANGE', aside, 0, 0)[1]
            if not flow or flow_parts(flow) then return flow end
            redis.call('ZREM', aside, flow)
        end
    end

    -- When to look at a gate again. Where lost holders are looked for this is later the more gates there are.
    local function looks_again_ms(room, name, again_ms)
        if string.sub(name, 1, 5) == 'rate|' then return again_ms end
        return math.max(again_ms, now_ms() + redis.call('ZCARD', room.openings) * LOOK_EACH_MS)
    end

    -- Brings as many flows back from a gate as may pass it now.
    function reopen(room, name)
        local aside = aside_at(room, name)
        local first = first_flow_aside(aside)
        local places, again_ms = 0, nil
        if first then
            local _, tenant, text = flow_parts(first)
            for _, gate in ipairs((gates_of(room, tenant, text))) do
                if gate_name(gate) == name then places, again_ms = room_at(room.namespace, gate, now_ms()) end
            end
            -- Nobody stands before it any more, as people have taken a tenant's ceiling away.
            if not again_ms then places, again_ms = LOOKS_MAX, now_ms() + 1 end
        end
        if places >= 1 then
            for _, flow in ipairs(take_aside(room, name, aside, math.min(math.floor(places), LOOKS_MAX))) do
                if flow_parts(flow) then activate(room, flow, OWED) end
            end
        end
        if redis.call('EXISTS', aside) == 0 then
            redis.call('ZREM', room.openings, name)
        else
            again_ms = looks_again_ms(room, name, again_ms or now_ms() + 1)
            redis.call('ZADD', room.openings, string.format('%.0f', math.max(again_ms, now_ms() + 1)), name)
        end
    end

    -- Looks at all gates again, whatever they were said to open at.
    local function open_anew(room) redis.call('ZUNIONSTORE', room.openings, 1, room.openings, 'WEIGHTS', 0) end

    -- No gate is looked at again later than this; one that is has been put down before the clock was set back.
    local function has_lost_time(room)
        local last_ms = tonumber(redis.call('ZRANGE', room.openings, -1, -1, 'WITHSCORES')[2])
        local latest_ms = now_ms() + LOOK_AGAIN_LATE_MS + LOOK_AGAIN_MS
        return last_ms and last_ms > latest_ms and last_ms > latest_ms + redis.call('ZCARD', room.openings) * LOOK_EACH_MS
    end

    function reopen_due(room)
        if has_lost_time(room) then open_anew(room) end
        local due = redis.call('ZRANGEBYSCORE', room.openings, '-inf', now_ms(), 'LIMIT', 0, OPENINGS_MAX)
        for _, name in ipairs(due) do reopen(room, name) end
    end

    -- Looks at all gates again when people have said something of limits since.
    function hear_of_limits(room)
        local said = redis.pcall('GET', room.namespace .. LIMITS_SAID)
        if type(said) ~= 'string' or said == redis.call('HGET', room.state, 'limits_said') then return end
        redis.call('HSET', room.state, 'limits_said', said)
        open_anew(room)
    end

    local function reopen_if_waited_at(room, gate)
        if redis.call('EXISTS', aside_at(room, gate_name(gate))) == 1 then reopen(room, gate_name(gate)) end
    end

    -- Puts a flow aside until a gate opens. The place that it found free at another one is for who waits there.
    function set_aside(room, flow, start, gates, shut, again_ms)
        local level, tenant = flow_parts(flow)
        deactivate(room, level, tenant, flow)
        local name = gate_name(shut)
        redis.call('ZADD', aside_at(room, name), score_aside(level, start), flow)
        redis.call('ZADD', room.openings, 'NX', string.format('%.0f', looks_again_ms(room, name, again_ms)), name)
        for _, gate in ipairs(gates) do
            if gate ~= shut then reopen_if_waited_at(room, gate) end
        end
    end

    -- What a flow found open is for who waits there, where nobody wants the call any more that was to pass.
    function leave_to_others(room, gates)
        for _, gate in ipairs(gates) do reopen_if_waited_at(room, gate) end
    end

    -- The name of the gate that a flow waits aside at; nil if it does not.
    function gate_aside(room, flow)
        local _, tenant, text = flow_parts(flow)
        for _, gate in ipairs((gates_of(room, tenant, text))) do
            if redis.call('ZSCORE', aside_at(room, gate_name(gate)), flow) then return gate_name(gate) end
        end
    end

    -- Forgets a flow in which nobody waits, wherever it is.
    function forget_flow(room, flow)
        local level, tenant, text = flow_parts(flow)
        if not level then return end
        deactivate(room, level, tenant, flow)
        for _, gate in ipairs((gates_of(room, tenant, text))) do
            local name = gate_name(gate)
            if redis.call('ZREM', aside_at(room, name), flow) == 1 and redis.call('EXISTS', aside_at(room, name)) == 0 then
                redis.call('ZREM', room.openings, name)
            end
        end
    end
end
