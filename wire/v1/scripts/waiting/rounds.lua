-- Many plain messages that go on at once: the same as to move one after the other (moving.lua), with a fraction of the
-- commands. Levels, tenants, the flows of a tenant and the runs of a flow are read as far as they may be needed, their turns are
-- taken in Lua, and where they have come to is written down once. Begins other scripts, behind plain.lua.

local move_plain
do  -- a script has no more than 200 local names at once
    -- The tenants whose turns are next, as many as may be needed, and the one behind them, where these end: one with limits
    -- of its own, or whom there was no need to look at.
    local function next_tenants(room, level, most)
        local found = redis.call('ZRANGE', turns_of(room, level), 0, most, 'WITHSCORES')
        local names, tenants = {}, {}
        for i = 1, #found, 2 do names[#names + 1] = found[i] end
        local said = redis.pcall('HMGET', room.namespace .. TENANTS, unpack(names))
        for i, name in ipairs(names) do
            local tenant = {name = name, start = tonumber(found[2 * i]), step = 1}
            if type(said[i]) == 'string' and name ~= '' then
                tenant.step = 1 / terms_of_tenant(room, name).weight
                if gate_of_tenant(room, name) then return tenants, tenant end
            end
            if tenant.start == OWED or i > most then return tenants, tenant end
            tenants[i] = tenant
        end
        return tenants
    end

    local function comes_before(one, other)
        return one.start < other.start or (one.start == other.start and one.name < other.name)
    end

    -- Reads which flows of a tenant are next, up to the first one that is not of plain messages, for so many calls.
    local function read_flows(room, level, tenant, calls)
        local flows = redis.call('ZRANGE', flows_of(room, level, tenant.name), 0, calls)
        local its = {}
        tenant.at, tenant.is_all = 1, #flows <= calls
        for i, name in ipairs(flows) do
            local its_level, its_tenant, text, is_plain = flow_parts(name)
            if i > calls or not is_plain or its_level ~= level or its_tenant ~= tenant.name then
                tenant.is_all = false
                break
            end
            its[i] = {name = name, text = text, gates = gates_in(text), tenant = its_tenant, placed = {}, ends_ms = 0}
        end
        tenant.each = tenant.is_all and math.ceil(calls / math.max(#flows, 1)) or 1
        tenant.flows = its
    end

    -- The calls of a flow that somebody has cancelled, which pass no gate.
    local function note_cancelled(room, flow, calls)
        local marks = {}
        for i, call in ipairs(calls) do marks[i] = room.namespace .. CANCELLED .. call end
        if #marks == 0 or redis.call('EXISTS', unpack(marks)) == 0 then return end
        for i, call in ipairs(calls) do flow.is_odd[call] = redis.call('EXISTS', marks[i]) == 1 or nil end
    end

    -- Reads which runs of a flow are next, and so many of their calls.
    local function read_runs(room, flow, calls)
        local runs = redis.call('ZRANGE', line_of(room, flow.name), 0, calls)
        local its = {}
        flow.at, flow.is_all, flow.is_odd, flow.calls = 1, #runs <= calls, {}, {}
        local each = flow.is_all and math.ceil(calls / math.max(#runs, 1)) or 1
        for i = 1, math.min(#runs, calls) do
            local list = plain_list(room, flow.name, runs[i])
            local parts = redis.call('LRANGE', list, 0, each * PARTS)
            local has_more = #parts > each * PARTS
            its[i] = {
                name = runs[i], list = list, parts = parts, at = 1, has_more = has_more,
                last = has_more and each * PARTS or #parts}
            if flow.text ~= '' then
                for at = 4, its[i].last, PARTS do flow.calls[#flow.calls + 1] = parts[at] end
            end
        end
        note_cancelled(room, flow, flow.calls)
        flow.runs = its
    end

    -- The next run of a flow; nil where it has not been read. One that has none left is over.
    local function next_run(flow)
        while true do
            local run = flow.runs[flow.at]
            if not run then
                flow.is_over = flow.is_all
                return nil
            end
            if run.at <= run.last then return run end
            if run.has_more then return nil end
            flow.at = flow.at + 1  -- nobody waits there
        end
    end

    -- The next flow of a tenant and its next run; nil where they have not been read. Who has none left is over.
    local function next_flow(room, tenant)
        while true do
            local flow = tenant.flows[tenant.at]
            if not flow then
                tenant.is_over = tenant.is_all
                return nil
            end
            if not flow.runs then read_runs(room, flow, tenant.each) end
            local run = next_run(flow)
            if run or not flow.is_over then return run and flow, run end
            tenant.at = tenant.at + 1  -- nobody waits there
        end
    end

    -- Finds how many may pass each gate of a flow, beside those of other flows, in the order of `first_shut` and up to one that
    -- is shut; and which of its calls may have passed them.
    local function ask_gates(room, flow, places)
        flow.places, flow.passed = {}, string.format('%.0f ', now_ms())
        for _, kind in ipairs({'concurrency', 'rate'}) do
            for _, gate in ipairs(flow.gates) do
                if gate[1] == kind then
                    local name = gate_name(gate)
                    places[name] = places[name] or {left = math.floor((room_at(room.namespace, gate, now_ms())))}
                    flow.places[#flow.places + 1] = places[name]
                    if places[name].left < 1 then return end
                end
            end
        end
        local known = known_among(room.namespace, flow.gates, flow.calls) or {}
        for i in pairs(known) do flow.is_odd[flow.calls[i]] = true end
    end

    -- Whether the next call of a flow may go like the others: not where it is for moving.lua to say what becomes of it.
    local function may_go(room, flow, run, places)
        local parts, at = run.parts, run.at
        if parts[at + 1] == '' then return false end
        if flow.text == '' then return true end
        local call, ends_ms = parts[at + 3], tonumber(parts[at + 5])
        if not ends_ms or #flow.gates == 0 or at + PARTS - 1 > run.last then return false end
        if flow.is_odd[call] or has_expired(ends_ms) then return false end
        if not flow.places then ask_gates(room, flow, places) end
        for _, place in ipairs(flow.places) do
            if place.left < 1 then return false end
        end
        return not flow.is_odd[call]
    end

    -- Sends a call with limits on. The fields that `send` adds, in its order.
    local function send_limited(stream, flow, run, at)
        local parts, placed, id = run.parts, flow.placed, nil
        local call, claim, ends = parts[at + 3], parts[at + 4], parts[at + 5]
        run.who = run.who or as_who(flow.tenant, run.name)
        local waits = flow.passed .. ends .. run.who
        if claim == '' then
            id = redis.call('XADD', stream, '*', 'b', parts[at], 'h', parts[at + 1], 'p', parts[at + 2], 'id', call,
                'gates', flow.text, 'waits_as', waits)
        else
            id = redis.call('XADD', stream, '*', 'b', parts[at], 'h', parts[at + 1], 'p', parts[at + 2], 'id', call,
                'claim', claim, 'gates', flow.text, 'waits_as', waits)
        end
        local n = #placed
        placed[n + 1], placed[n + 2] = call, stream .. ' ' .. id
        flow.is_odd[call] = true  -- a second message of it is looked at by itself
        flow.ends_ms = math.max(flow.ends_ms, tonumber(ends))
        for _, place in ipairs(flow.places) do place.left = place.left - 1 end
    end

    local function send_next(stream, flow, run)
        local parts, at = run.parts, run.at
        local claim = parts[at + 4]
        if flow.text ~= '' then
            send_limited(stream, flow, run, at)
        elseif at + PARTS - 1 > run.last or claim == '' then
            redis.call('XADD', stream, '*', unpack(parsed_fields(parts, at)))
        else
            redis.call('XADD', stream, '*', 'b', parts[at], 'h', parts[at + 1], 'p', parts[at + 2], 'id', parts[at + 3],
                'claim', claim)
        end
        run.at = at + PARTS
    end

    -- Puts a tenant in its place among those from `first` on, which are in order of their starts: mostly the last.
    local function put_in_order(tenants, first, tenant)
        local place = #tenants
        while place >= first and comes_before(tenant, tenants[place]) do
            tenants[place + 1] = tenants[place]
            place = place - 1
        end
        tenants[place + 1] = tenant
    end

    -- Has a flow and its run wait for their next turns, behind the others of theirs.
    local function take_turn(tenant, flow, run, move)
        run.moved, flow.moved = move, move
        flow.at = flow.at + 1
        if flow.is_all and (run.at <= run.last or run.has_more) then flow.runs[#flow.runs + 1] = run end
        tenant.at = tenant.at + 1
        if tenant.is_all and (next_run(flow) or not flow.is_over) then tenant.flows[#tenant.flows + 1] = flow end
    end

    -- Sends calls on, one after the other in their turns, as far as they have been read and may go, and counts them in
    -- `round`. Whether they end at one that moving.lua is to look at.
    local function send_in_turn(room, level, tenants, limit, most, round)
        local times, stream, each, places = times_of(room), stream_of(room, level), math.ceil(most / #tenants), {}
        local first = 1
        while round.sent < most do
            local tenant = tenants[first]
            if not tenant or (limit and comes_before(limit, tenant)) then break end
            if not tenant.flows then read_flows(room, level, tenant, each) end
            local flow, run = next_flow(room, tenant)
            if not flow and not tenant.is_over then break end
            if flow and not may_go(room, flow, run, places) then return true end
            first = first + 1
            if flow then
                send_next(stream, flow, run)
                round.sent = round.sent + 1
                if room.lengths[stream] then room.lengths[stream] = room.lengths[stream] + 1 end
                take_turn(tenant, flow, run, times.moves + round.sent)
                times[level] = math.max(times[level], tenant.start)
                tenant.share = tenant.start + tenant.step
                tenant.start = math.max(times[level], tenant.share)
                if next_flow(room, tenant) or not tenant.is_over then put_in_order(tenants, first, tenant) end
            end
        end
        return false
    end

    -- Writes down how far the runs of a flow have come; adds what is over to what goes, the flow's own set if all are.
    local function keep_runs(room, flow, gone)
        local turns, over, line = {}, {}, line_of(room, flow.name)
        for _, run in ipairs(flow.runs) do
            if not run.is_kept and run.at > run.last and not run.has_more then
                over[#over + 1] = run.name
                gone.keys[#gone.keys + 1], gone.indices[#gone.indices + 1] = run.list, plain_index(flow.name, run.name)
                gone.are_limited = gone.are_limited or flow.text ~= ''
            elseif not run.is_kept and run.moved then
                redis.call('LTRIM', run.list, run.at - 1, -1)
                turns[#turns + 1], turns[#turns + 2] = run.moved, run.name
            end
            run.is_kept = true
        end
        if flow.is_over then
            gone.keys[#gone.keys + 1] = line
            return
        end
        if #turns > 0 then redis.call('ZADD', line, unpack(turns)) end
        if #over > 0 then redis.call('ZREM', line, unpack(over)) end
    end

    -- The same for the flows of a tenant. What has gone passes its gates.
    local function keep_flows(room, level, tenant, gone)
        local turns, over, flows = {}, {}, flows_of(room, level, tenant.name)
        for _, flow in ipairs(tenant.flows) do
            if flow.runs and not flow.is_kept then
                flow.is_kept = true
                if #flow.placed > 0 then pass_together(room.namespace, flow.gates, now_ms(), flow.placed, flow.ends_ms) end
                flow.is_over = not next_run(flow) and flow.is_over
                keep_runs(room, flow, gone)
                if flow.is_over then
                    over[#over + 1] = flow.name
                elseif flow.moved then
                    turns[#turns + 1], turns[#turns + 2] = flow.moved, flow.name
                end
            end
        end
        if tenant.is_over then
            gone.keys[#gone.keys + 1] = flows
            return
        end
        if #turns > 0 then redis.call('ZADD', flows, unpack(turns)) end
        if #over > 0 then redis.call('ZREM', flows, unpack(over)) end
    end

    local function keep_tenants(room, level, tenants)
        local shares, turns, over, gone = {}, {}, {}, {keys = {}, indices = {}}
        for _, tenant in ipairs(tenants) do
            if tenant.flows then
                keep_flows(room, level, tenant, gone)
                if tenant.share then shares[#shares + 1], shares[#shares + 2] = tenant.share, tenant.name end
                if tenant.is_over then
                    over[#over + 1] = tenant.name
                else
                    turns[#turns + 1], turns[#turns + 2] = tenant.start, tenant.name
                end
            end
        end
        -- What is sent goes first: where a turn cannot be written it is not to go again.
        if #gone.keys > 0 then redis.call('UNLINK', unpack(gone.keys)) end
        if #gone.indices > 0 then redis.call('ZREM', room.plain, unpack(gone.indices)) end
        if gone.are_limited then redis.call('ZREM', room.ends, unpack(gone.indices)) end
        if #over > 0 then redis.call('ZREM', turns_of(room, level), unpack(over)) end
        if #turns > 0 then redis.call('ZADD', turns_of(room, level), unpack(turns)) end
        if #shares > 0 then redis.call('ZADD', shares_of(room, level), unpack(shares)) end
    end

    -- Moves plain messages of a level, while no other level has any. How many, 0 where the next one is to be looked at by
    -- itself; and whether it is known that the one behind them is.
    local MANY_MAX = 1000
    function move_plain(room, level, most)
        for _, other in ipairs(LEVELS) do
            if other ~= level and redis.call('EXISTS', turns_of(room, other)) == 1 then return 0, false end
        end
        local tenants, limit = next_tenants(room, level, math.min(most, MANY_MAX))
        if #tenants == 0 then return 0, false end
        local all, round = {unpack(tenants)}, {sent = 0}
        -- Where one of those behind cannot be read, those that have been sent have gone all the same.
        local is_done, is_odd = pcall(send_in_turn, room, level, tenants, limit, math.min(most, MANY_MAX), round)
        room.has_waiting = nil
        times_of(room).moves = times_of(room).moves + round.sent
        keep_tenants(room, level, all)
        if round.sent > 0 then count_plain(room, -round.sent) end
        if not is_done then error(is_odd, 0) end
        return round.sent, is_odd
    end
end
