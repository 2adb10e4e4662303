-- What anybody who has Redis may have put in the place of a room's keys. Begins other scripts, behind moving.lua.

local cleared, mend
do  -- a script has no more than 200 local names at once
    -- How many of a set are looked at: what makes a script fail stands at its beginning.
    local MENDED_MAX = 100

    -- Deletes what is of another type than is kept there. 1 if so.
    function cleared(key, kind)
        local found = redis.call('TYPE', key).ok
        if found == kind or found == 'none' then return 0 end
        return redis.pcall('DEL', key) == 1 and 1 or 0
    end

    -- Looks through a room in which a script has failed, and through the gates of the call that it failed with. Whether it may
    -- be tried again, with nothing remembered. Its parts are made only where it is called, which is seldom.
    function mend(room, level, tenant, gates)
        local function mended_gate(name)
            return cleared(room.namespace .. GATE .. name, 'hash') + cleared(room.namespace .. HOLDERS .. name, 'hash')
                + cleared(aside_at(room, name), 'zset')
        end

        local function mended_line(flow) return cleared(line_of(room, flow), 'zset') end

        -- The same of lists of plain messages, which are in the index again.
        local function mended_lists(flow)
            local mended = 0
            for _, run in ipairs(redis.call('ZRANGE', line_of(room, flow), 0, MENDED_MAX)) do
                local list = plain_list(room, flow, run)
                mended = mended + cleared(list, 'list')
                if redis.call('EXISTS', list) == 1 then redis.call('ZADD', room.plain, 0, plain_index(flow, run)) end
            end
            return mended
        end

        local function mended_gates(tenant, text)
            local mended = 0
            for _, gate in ipairs((gates_of(room, tenant, text))) do mended = mended + mended_gate(gate_name(gate)) end
            return mended
        end

        local function mended_flows(level, tenant)
            local flows, mended = flows_of(room, level, tenant), 0
            mended = cleared(flows, 'zset')
            for _, flow in ipairs(redis.call('ZRANGE', flows, 0, MENDED_MAX)) do
                local _, _, text, is_plain = flow_parts(flow)
                if text then mended = mended + mended_line(flow) + mended_gates(tenant, text) end
                if is_plain then mended = mended + mended_lists(flow) end
            end
            return mended
        end

        local function mended_levels()
            local mended = 0
            for _, level in ipairs(LEVELS) do
                mended = mended + cleared(turns_of(room, level), 'zset') + cleared(shares_of(room, level), 'zset')
                for _, tenant in ipairs(redis.call('ZRANGE', turns_of(room, level), 0, MENDED_MAX)) do
                    mended = mended + mended_flows(level, tenant)
                end
            end
            return mended
        end

        local function has_limits(flow)
            local _, _, text = flow_parts(flow)
            return text ~= ''
        end

        -- Has a flow wait for its turn, or its gate looked at.
        local function put_flow_in_order(flow)
            local gate = gate_aside(room, flow)
            if gate then
                redis.call('ZADD', room.openings, 'NX', 0, gate)
            else
                activate(room, flow, times_of(room).moves)
            end
        end

        -- Gives calls that wait a place in the order again, where that was lost.
        local CALLS_MENDED = 1000
        local function put_in_order(drops)
            local page = redis.call('HSCAN', room.calls, 0, 'COUNT', CALLS_MENDED)[2]
            for i = 1, #page, 2 do
                local flow, _, ends_ms = unpacked(page[i + 1])
                if drops and not flow then
                    redis.call('HDEL', room.calls, page[i])
                elseif flow then
                    redis.call('ZADD', line_of(room, flow), 'NX', 0, page[i])
                    if ends_ms > 0 then redis.call('ZADD', room.ends, string.format('%.0f', ends_ms), page[i]) end
                    put_flow_in_order(flow)
                end
            end
        end

        -- The same of plain messages, and counts them anew.
        local function put_plain_in_order()
            local calls = 0
            for _, index in ipairs(redis.call('ZRANGE', room.plain, 0, -1)) do
                local flow, run, list = plain_at(room, index)
                local length = flow and redis.pcall('LLEN', list)
                if type(length) == 'number' then
                    calls = calls + length / PARTS
                    mended_line(flow)
                    redis.call('ZADD', line_of(room, flow), 'NX', times_of(room).moves, run)
                    -- Whoever finds it due looks when it is.
                    if has_limits(flow) then redis.call('ZADD', room.ends, 'NX', 0, index) end
                    put_flow_in_order(flow)
                else
                    redis.call('ZREM', room.plain, index)
                end
            end
            redis.call('HSET', room.state, PLAIN_WAITING, math.floor(calls))
        end

        local mended = cleared(room.plain, 'zset')
        for _, key in ipairs({'state', 'calls', 'runs'}) do mended = mended + cleared(room[key], 'hash') end
        for _, key in ipairs({'openings', 'ends', 'told'}) do mended = mended + cleared(room[key], 'zset') end
        mended = mended + cleared(room.namespace .. ROOM_WORKERS .. room.queue, 'hash') + mended_levels()
        for _, name in ipairs(redis.call('ZRANGE', room.openings, 0, MENDED_MAX)) do
            mended = mended + mended_gate(name)
        end
        if level then
            mended = mended + cleared(flows_of(room, level, tenant), 'zset') + mended_gates(tenant, gates)
                + mended_line(flow_named(level, tenant, gates)) + mended_line(flow_named(level, tenant, PLAIN .. gates))
                + mended_lists(flow_named(level, tenant, PLAIN .. gates))
        end
        room.heads, room.finishes, room.lengths = {}, {}, {}
        room.times, room.has_waiting, room.slots, room.moved = nil, nil, nil, false
        terms_by_name, tenants = {}, {}
        local lost = is_lost(room)
        if lost then mended = mended + 1 end
        if mended > 0 then
            put_in_order(lost)
            put_plain_in_order()
        end
        return mended > 0
    end
end

local function count_failure(room) redis.pcall('HINCRBY', room.namespace .. COUNTERS, 'waiting_room_failures', 1) end

-- Does something with a room where a failure must not keep the script from what else it does. It is counted, and what has
-- caused it removed: it harms no more than itself.
local function safely(room, work, ...)
    if pcall(work, room, ...) then return end
    count_failure(room)
    local looked, may_again = pcall(mend, room)
    if looked and may_again then pcall(work, room, ...) end
end
