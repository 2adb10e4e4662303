-- Calls without limits that wait: for nothing but their turn, so each run's are a list of messages as they came. Of one
-- nobody wants any more its worker finds that out, and of two of one call the claim, as with what goes straight into a
-- stream. Begins other scripts, behind alone.lua.

-- Of each message: body, headers, properties, call, how long its claim lasts, deadline.
local PARTS = 6

local plain_flow, let_plain_wait, plain_head, plain_flows_of, plain_flow_of, forget_plain, move_plain
do  -- a script has no more than 200 local names at once
    -- All flows with such calls are found by their runs.
    local function index_of(flow)
        local _, _, _, run = flow_parts(flow)
        return run .. OF_RUN .. flow
    end

    function plain_flows_of(room, run)
        local flows, prefix = {}, run .. OF_RUN
        local found = redis.call('ZRANGEBYLEX', room.plain, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, 3)
        for _, index in ipairs(found) do
            flows[#flows + 1] = string.sub(index, #prefix + 1)
        end
        return flows
    end

    -- The flow that stands so in the index; nil where anybody else has written there.
    function plain_flow_of(index)
        for at in string.gmatch(index, OF_RUN .. '()') do
            local flow = string.sub(index, at)
            local _, _, _, run = flow_parts(flow)
            if run and index_of(flow) == index then return flow end
        end
    end

    local function count_plain(room, calls) redis.call('HINCRBY', room.state, PLAIN_WAITING, calls) end

    -- Whether the first or the last of the messages at the end of a line have waited there before: somebody has lost the
    -- reply to them and sent them again. That was a moment ago, so it is not looked for further on.
    local BEHIND = 50 * PARTS
    local function wait_twice(line, parts)
        local first, last = parts[4], parts[#parts - PARTS + 4]
        local function waits_twice(call) return redis.call('LPOS', line, call, 'RANK', -2, 'MAXLEN', 2 * #parts + BEHIND) end
        return waits_twice(last) or (first ~= last and waits_twice(first))
    end

    -- Those that do not wait yet, of these.
    local function without_copies(room, line, parts)
        local news = {}
        for at = 1, #parts, PARTS do
            if redis.call('LPOS', line, parts[at + 3], 'RANK', -1, 'MAXLEN', #parts + BEHIND) then
                count_copy(room)
            else
                for i = at, at + PARTS - 1 do news[#news + 1] = parts[i] end
            end
        end
        return news
    end

    -- Lets flows take their turns in which nobody has waited so far, each with its tenant.
    local function begin_flows(room, level, begun)
        local indices, flows, tenants, turns = {}, {}, {}, {}
        for _, each in ipairs(begun) do
            local n, tenant = #indices, each.tenant
            indices[n + 1], indices[n + 2] = 0, each.index
            if not flows[tenant] then
                flows[tenant], tenants[#tenants + 1] = {}, tenant
            end
            local its = flows[tenant]
            -- Of flows that begin at once the one goes first that came first.
            n = #its
            its[n + 1], its[n + 2] = times_of(room).moves + arrival_in(room), each.flow
        end
        redis.call('ZADD', room.plain, unpack(indices))
        for tenant, its in pairs(flows) do redis.call('ZADD', flows_of(room, level, tenant), unpack(its)) end
        for i, finish in ipairs(redis.call('ZMSCORE', shares_of(room, level), unpack(tenants))) do
            turns[2 * i - 1], turns[2 * i] = math.max(times_of(room)[level], tonumber(finish) or 0), tenants[i]
        end
        redis.call('ZADD', turns_of(room, level), 'NX', unpack(turns))
    end

    -- A flow to which messages are added.
    function plain_flow(room, level, tenant, run)
        local flow = plain_flow_named(level, tenant, run)
        local line = room.namespace .. ROOM_PLAIN_LINE .. room.queue .. ':' .. flow
        return {flow = flow, tenant = tenant, run = run, line = line, index = run .. OF_RUN .. flow, parts = {}}
    end

    -- Adds the messages of some flows: all or none, but for copies. No more of them than one command takes.
    function let_plain_wait(room, level, news)
        local begun, calls = {}, 0
        local function push(each)
            local line, parts = each.line, each.parts
            local length = redis.call('RPUSH', line, unpack(parts))
            if length > #parts and wait_twice(line, parts) then
                redis.call('LTRIM', line, 0, -1 - #parts)
                parts = without_copies(room, line, parts)
                if #parts == 0 then return end
                redis.call('RPUSH', line, unpack(parts))
            end
            each.pushed = #parts
            calls = calls + #parts / PARTS
            if length == #parts then begun[#begun + 1] = each end
        end
        local function push_all()
            for _, each in ipairs(news) do push(each) end
            if #begun > 0 then begin_flows(room, level, begun) end
            count_plain(room, calls)
            room.has_waiting = true
        end
        local is_done, failure = pcall(push_all)
        if is_done then return end
        for i = #news, 1, -1 do
            if news[i].pushed then redis.pcall('LTRIM', news[i].line, 0, -1 - news[i].pushed) end
            news[i].pushed = nil
        end
        error(failure, 0)
    end

    -- The fields of the message whose parts begin there. What somebody has cut short goes to a worker, which will bury it.
    local function fields_of(parts, at)
        local body, headers, properties, call, claim = parts[at], parts[at + 1], parts[at + 2], parts[at + 3], parts[at + 4]
        if not parts[at + PARTS - 1] then return {'raw', table.concat(parts, ' ', at)} end
        if claim == '' then return {'b', body, 'h', headers, 'p', properties, 'id', call} end
        return {'b', body, 'h', headers, 'p', properties, 'id', call, 'claim', claim}
    end

    -- The first message of a flow, as `send` takes it, and its call; nil where nobody waits.
    function plain_head(room, flow)
        local level, tenant, _, run = flow_parts(flow)
        local parts = redis.call('LRANGE', line_of(room, flow), 0, PARTS - 1)
        if #parts == 0 then return nil end
        return {
            run = run, tenant = tenant, ends_ms = number(parts[PARTS]) or 0, readers = '', stream = stream_of(room, level),
            fields = fields_of(parts, 1), flow = flow,
        }, parts[4] or ''
    end

    -- Forgets the first messages of a flow.
    function forget_plain(room, flow, calls)
        redis.call('LTRIM', line_of(room, flow), calls * PARTS, -1)
        count_plain(room, -calls)
        if redis.call('EXISTS', line_of(room, flow)) == 0 then redis.call('ZREM', room.plain, index_of(flow)) end
        room.has_waiting = nil
    end

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

    -- Reads which flows of a tenant are next, up to the first one with limits, and so many calls of it.
    local function read_flows(room, level, tenant, calls)
        local prefix = flow_named(level, tenant.name, OF_RUN)
        local lines = room.namespace .. ROOM_PLAIN_LINE .. room.queue .. ':'
        local flows = redis.call('ZRANGE', flows_of(room, level, tenant.name), 0, calls)
        tenant.flows, tenant.at, tenant.is_all = {}, 1, #flows <= calls
        local each = tenant.is_all and math.ceil(calls / #flows) or 1
        for i, name in ipairs(flows) do
            if i > calls or string.sub(name, 1, #prefix) ~= prefix then
                tenant.is_all = false
                break
            end
            local line = lines .. name
            local parts = redis.call('LRANGE', line, 0, each * PARTS)
            local flow = {name = name, run = string.sub(name, #prefix + 1), line = line, parts = parts, at = 1}
            flow.has_more = #parts > each * PARTS
            flow.last = flow.has_more and each * PARTS or #parts
            tenant.flows[i] = flow
        end
    end

    -- The next flow of a tenant; nil where it has not been read. Who has none left is over.
    local function next_flow(tenant)
        while true do
            local flow = tenant.flows[tenant.at]
            if not flow then
                tenant.is_over = tenant.is_all
                return nil
            end
            if flow.at <= flow.last then return flow end
            if flow.has_more then return nil end
            tenant.at = tenant.at + 1  -- nobody waits there
        end
    end

    local function send_next(stream, flow)
        local parts, at = flow.parts, flow.at
        flow.at = at + PARTS
        local claim = parts[at + 4]
        if flow.at - 1 > flow.last or claim == '' then
            redis.call('XADD', stream, '*', unpack(fields_of(parts, at)))
        else
            redis.call('XADD', stream, '*', 'b', parts[at], 'h', parts[at + 1], 'p', parts[at + 2], 'id', parts[at + 3],
                'claim', claim)
        end
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

    -- Sends calls on, one after the other in their turns, as far as they have been read. How many.
    local function send_in_turn(room, level, tenants, limit, most)
        local times, stream, each = times_of(room), stream_of(room, level), math.ceil(most / #tenants)
        local sent, first = 0, 1
        while sent < most do
            local tenant = tenants[first]
            if not tenant or (limit and comes_before(limit, tenant)) then break end
            if not tenant.flows then read_flows(room, level, tenant, each) end
            local flow = next_flow(tenant)
            if not flow and not tenant.is_over then break end
            first = first + 1
            if flow then
                send_next(stream, flow)
                sent = sent + 1
                flow.moved = times.moves + sent
                tenant.at = tenant.at + 1
                if tenant.is_all and (flow.at <= flow.last or flow.has_more) then tenant.flows[#tenant.flows + 1] = flow end
                times[level] = math.max(times[level], tenant.start)
                tenant.share = tenant.start + tenant.step
                tenant.start = math.max(times[level], tenant.share)
                if next_flow(tenant) or not tenant.is_over then put_in_order(tenants, first, tenant) end
            end
        end
        if room.lengths[stream] then room.lengths[stream] = room.lengths[stream] + sent end
        return sent
    end

    -- Writes down how far a tenant's flows have come; adds those that are over to what goes.
    local function keep_flows(room, level, tenant, lines, indices)
        local scores, over = {}, {}
        for i = #tenant.flows, 1, -1 do
            local flow = tenant.flows[i]
            local is_over = flow.at > flow.last and not flow.has_more
            if is_over and not flow.is_kept then
                over[#over + 1], lines[#lines + 1] = flow.name, flow.line
                indices[#indices + 1] = flow.run .. OF_RUN .. flow.name
            elseif flow.moved and not flow.is_kept then
                redis.call('LTRIM', flow.line, flow.at - 1, -1)
                scores[#scores + 1], scores[#scores + 2] = flow.moved, flow.name
            end
            flow.is_kept = true
        end
        if #scores > 0 then redis.call('ZADD', flows_of(room, level, tenant.name), unpack(scores)) end
        if #over > 0 then redis.call('ZREM', flows_of(room, level, tenant.name), unpack(over)) end
    end

    local function keep_tenants(room, level, tenants)
        local lines, indices, shares, turns, over = {}, {}, {}, {}, {}
        for _, tenant in ipairs(tenants) do
            if tenant.flows then
                keep_flows(room, level, tenant, lines, indices)
                if tenant.share then shares[#shares + 1], shares[#shares + 2] = tenant.share, tenant.name end
                if tenant.is_over then
                    over[#over + 1] = tenant.name
                else
                    turns[#turns + 1], turns[#turns + 2] = tenant.start, tenant.name
                end
            end
        end
        if #shares > 0 then redis.call('ZADD', shares_of(room, level), unpack(shares)) end
        if #turns > 0 then redis.call('ZADD', turns_of(room, level), unpack(turns)) end
        if #over > 0 then redis.call('ZREM', turns_of(room, level), unpack(over)) end
        if #lines > 0 then redis.call('UNLINK', unpack(lines)) end
        if #indices > 0 then redis.call('ZREM', room.plain, unpack(indices)) end
    end

    -- Moves calls without limits of a level, while no other level has any: the same as to move one after the other, with a
    -- fraction of the commands. How many; 0 where the next one is to be looked at by itself.
    local MANY_MAX = 1000
    function move_plain(room, level, most)
        for _, other in ipairs(LEVELS) do
            if other ~= level and redis.call('EXISTS', turns_of(room, other)) == 1 then return 0 end
        end
        local tenants, limit = next_tenants(room, level, math.min(most, MANY_MAX))
        if #tenants == 0 then return 0 end
        local all = {unpack(tenants)}
        local sent = send_in_turn(room, level, tenants, limit, math.min(most, MANY_MAX))
        keep_tenants(room, level, all)
        count_plain(room, -sent)
        times_of(room).moves = times_of(room).moves + sent
        room.has_waiting = nil
        return sent
    end
end
