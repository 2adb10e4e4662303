-- Plain messages that wait: for no lane, and of a tenant that has no limit of its own. In a flow of these each run's are a list
-- of messages as they came, and the runs take turns. Those with limits are in the order of their deadlines as well, so that
-- what nobody wants any more stands first and need not wait for a gate; where one is not, it waits as others do (lines.lua).
-- Whether one without limits is wanted its worker finds out, and of two of one call the claim tells which may start, as with
-- what goes straight into a stream. Begins other scripts, behind aside.lua.

-- Of each message: body, headers, properties, call, how long its claim lasts, deadline. Of one that has been with a worker:
-- all its fields as JSON and no headers, as it has more of them.
local PARTS = 6

local plain_flow, may_be_last, waits_already, let_plain_wait, let_wait_first, parsed_fields, plain_head, plain_length
local forget_plain, send_off_plain, plain_index, plain_list, plain_flows_of, plain_at, count_plain
do  -- a script has no more than 200 local names at once
    -- All lists are found by their runs. Names may have any characters in them.
    function plain_index(flow, run) return #run .. ':' .. run .. PLAIN .. flow end
    function plain_list(room, flow, run)
        return room.namespace .. ROOM_PLAIN_LINE .. room.queue .. ':' .. flow .. PLAIN .. run
    end

    -- The flows in which calls of a run wait, and their lists.
    local FLOWS_MAX = 100
    function plain_flows_of(room, run)
        local flows, lists, prefix = {}, {}, plain_index('', run)
        local found = redis.call('ZRANGEBYLEX', room.plain, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, FLOWS_MAX)
        for i, index in ipairs(found) do
            flows[i] = string.sub(index, #prefix + 1)
            lists[i] = plain_list(room, flows[i], run)
        end
        return flows, lists
    end

    -- The flow, the run and the list of those that stand so in the index; nil where anybody else has written there.
    function plain_at(room, index)
        local size, rest = string.match(index, '^(%d+):(.*)$')
        if not size then return nil end
        local run, flow = string.sub(rest, 1, size), string.sub(rest, size + #PLAIN + 1)
        local _, _, _, is_plain = flow_parts(flow)
        local list = is_plain and plain_list(room, flow, run)
        if list and redis.call('EXISTS', list) == 1 then return flow, run, list end
    end

    -- How many messages of a run wait in a flow.
    function plain_length(room, flow, run) return math.floor(redis.call('LLEN', plain_list(room, flow, run)) / PARTS) end

    -- What is there for people to read keeps no message from moving, whatever somebody has written in its place.
    function count_plain(room, calls)
        local counted = redis.pcall('HINCRBY', room.state, PLAIN_WAITING, calls)
        if type(counted) ~= 'number' then redis.call('HDEL', room.state, PLAIN_WAITING) end
    end

    -- What a flow's messages of one run are added to.
    function plain_flow(room, level, tenant, gates, run)
        local flow = flow_named(level, tenant, PLAIN .. gates)
        return {
            flow = flow, tenant = tenant, gates = gates, run = run, list = plain_list(room, flow, run), index = plain_index(flow, run),
            parts = {},
        }
    end

    -- When nobody wants a message any more, as its last part has it.
    local function wanted_until(text)
        local ms = number(text) or 0
        return ms > 0 and ms or math.huge
    end

    -- Whether a message with this deadline may stand behind those that wait there and that are to be added.
    function may_be_last(each, ends)
        if each.gates == '' then return true end
        local last = each.parts[#each.parts] or redis.call('LINDEX', each.list, -1)
        return not last or wanted_until(last) <= wanted_until(ends)
    end

    -- Whether the first or the last of the messages at the end of a list have waited there before: somebody has lost the
    -- reply to them and sent them again. That was a moment ago, so it is not looked for further on.
    local BEHIND = 50 * PARTS
    local function wait_twice(list, parts)
        local first, last = parts[4], parts[#parts - PARTS + 4]
        local function waits_twice(call) return redis.call('LPOS', list, call, 'RANK', -2, 'MAXLEN', 2 * #parts + BEHIND) end
        return waits_twice(last) or (first ~= last and waits_twice(first))
    end

    -- Those that do not wait yet, of these.
    local function without_copies(room, list, parts)
        local news = {}
        for at = 1, #parts, PARTS do
            if redis.call('LPOS', list, parts[at + 3], 'RANK', -1, 'MAXLEN', #parts + BEHIND) then
                count_copy(room)
            else
                for i = at, at + PARTS - 1 do news[#news + 1] = parts[i] end
            end
        end
        return news
    end

    local function forget_run(room, flow, run)
        local index = plain_index(flow, run)
        redis.call('ZREM', line_of(room, flow), run)
        redis.call('ZREM', room.plain, index)
        redis.call('ZREM', room.ends, index)
    end

    -- Whether a call waits there that may not be the last, as it has been sent again: behind it are those of later batches.
    local AGAIN_MAX = 500 * PARTS
    function waits_already(each, call)
        return redis.call('LPOS', each.list, call, 'RANK', -1, 'MAXLEN', AGAIN_MAX) and true or false
    end

    local function add(list, name, value) list[#list + 1], list[#list + 2] = name, value end

    -- Lets flows take their turns in which nobody has waited so far, each with its tenant: pairs of a turn and a flow, by
    -- their tenants.
    local function begin_flows(room, level, flows)
        local tenants, turns = {}, {}
        for tenant, its in pairs(flows) do
            redis.call('ZADD', flows_of(room, level, tenant), unpack(its))
            tenants[#tenants + 1] = tenant
        end
        for i, finish in ipairs(redis.call('ZMSCORE', shares_of(room, level), unpack(tenants))) do
            add(turns, math.max(times_of(room)[level], tonumber(finish) or 0), tenants[i])
        end
        redis.call('ZADD', turns_of(room, level), 'NX', unpack(turns))
    end

    -- Whether a flow waits for its turn, or aside. What half a try has left of one is no sign of that.
    local function has_turn(room, level, each)
        if redis.call('EXISTS', line_of(room, each.flow)) == 0 then return false end
        local is_next = redis.call('ZSCORE', flows_of(room, level, each.tenant), each.flow)
        if is_next then return redis.call('ZSCORE', turns_of(room, level), each.tenant) end
        return gate_aside(room, each.flow)
    end

    -- The same for runs of which nothing has waited, in the order of their first messages.
    local function begin_runs(room, level, begun)
        local indices, ends, lines, flows, are_new = {}, {}, {}, {}, false
        for _, each in ipairs(begun) do
            local flow, turn = each.flow, times_of(room).moves + arrival_in(room)
            add(indices, 0, each.index)
            if each.gates ~= '' and each.parts[PARTS] ~= '0' then add(ends, each.parts[PARTS], each.index) end
            if not lines[flow] then
                lines[flow] = {}
                if not has_turn(room, level, each) then
                    flows[each.tenant] = flows[each.tenant] or {}
                    add(flows[each.tenant], turn, flow)
                    are_new = true
                end
            end
            add(lines[flow], turn, each.run)
        end
        redis.call('ZADD', room.plain, unpack(indices))
        if #ends > 0 then redis.call('ZADD', room.ends, unpack(ends)) end
        for flow, line in pairs(lines) do redis.call('ZADD', line_of(room, flow), unpack(line)) end
        if are_new then begin_flows(room, level, flows) end
    end

    -- Adds the messages of some flows: all or none, but for copies. No more of them than one command takes.
    function let_plain_wait(room, level, news)
        local begun, calls = {}, 0
        local function push(each)
            local list, parts = each.list, each.parts
            if #parts == 0 then return end
            local length = redis.call('RPUSH', list, unpack(parts))
            if length > #parts and wait_twice(list, parts) then
                redis.call('LTRIM', list, 0, -1 - #parts)
                parts = without_copies(room, list, parts)
                if #parts == 0 then return end
                redis.call('RPUSH', list, unpack(parts))
            end
            each.pushed = #parts
            calls = calls + #parts / PARTS
            if length == #parts then begun[#begun + 1] = each end
        end
        local function push_all()
            for _, each in ipairs(news) do push(each) end
            if #begun > 0 then begin_runs(room, level, begun) end
            count_plain(room, calls)
            room.has_waiting = true
        end
        local is_done, failure = pcall(push_all)
        if is_done then return end
        for i = #news, 1, -1 do
            if news[i].pushed then redis.pcall('LTRIM', news[i].list, 0, -1 - news[i].pushed) end
            news[i].pushed = nil
            if redis.call('EXISTS', news[i].list) == 0 then pcall(forget_run, room, news[i].flow, news[i].run) end
        end
        error(failure, 0)
    end

    -- Lets a message that has been with a worker wait first of its run, whose turn is next.
    function let_wait_first(room, level, message)
        local each = plain_flow(room, level, message.tenant, message.gates, message.run)
        local first = redis.call('LINDEX', each.list, PARTS - 1)
        local ends = string.format('%.0f', message.ends_ms)
        local keeps_order = message.gates == '' or not first or wanted_until(ends) <= wanted_until(first)
        if not keeps_order or gate_of_tenant(room, message.tenant) or redis.call('HEXISTS', room.calls, message.call) == 1 then
            message.is_first = true
            return let_wait(room, level, message)
        end
        each.parts = {cjson.encode(message.fields), '', '', message.call, '', ends}
        if not first then
            let_plain_wait(room, level, {each})
        else
            local backwards = {}
            for i = PARTS, 1, -1 do backwards[#backwards + 1] = each.parts[i] end
            redis.call('LPUSH', each.list, unpack(backwards))
            count_plain(room, 1)
            room.has_waiting = true
            if message.gates ~= '' and ends ~= '0' then redis.call('ZADD', room.ends, ends, each.index) end
        end
        redis.call('ZADD', line_of(room, each.flow), OWED, each.run)
        redis.call('ZADD', flows_of(room, level, message.tenant), 'XX', OWED, each.flow)
    end

    -- The fields of a message that has been with a worker; nil where anybody else has written there.
    local function fields_in(text)
        local fields = decoded(text)
        if #fields < 2 or #fields > FIELDS_MAX or #fields % 2 == 1 then return nil end
        for _, part in ipairs(fields) do
            if type(part) ~= 'string' then return nil end
        end
        return fields
    end

    -- The fields of the message whose parts begin there. What somebody has cut short or written over goes to a worker, which
    -- will bury it.
    function parsed_fields(parts, at)
        local body, headers, properties, call, claim = parts[at], parts[at + 1], parts[at + 2], parts[at + 3], parts[at + 4]
        if not parts[at + PARTS - 1] then return {'raw', table.concat(parts, ' ', at)} end
        if headers == '' then return fields_in(body) or {'raw', body} end
        if claim == '' then return {'b', body, 'h', headers, 'p', properties, 'id', call} end
        return {'b', body, 'h', headers, 'p', properties, 'id', call, 'claim', claim}
    end

    -- The message whose parts these are, as `send` takes it, and its call.
    local function message_of(room, flow, run, parts)
        local level, tenant = flow_parts(flow)
        local fields = parsed_fields(parts, 1)
        return {
            run = run, tenant = tenant, ends_ms = number(parts[PARTS]) or 0, readers = '', stream = stream_of(room, level),
            fields = fields, held_as = field_of(fields, 'held_as'), flow = flow,
        }, parts[4] or ''
    end

    -- The next message of a flow, and its call; nil where nobody waits.
    function plain_head(room, flow)
        while true do
            local run = redis.call('ZRANGE', line_of(room, flow), 0, 0)[1]
            if not run then return nil end
            local parts = redis.call('LRANGE', plain_list(room, flow, run), 0, PARTS - 1)
            if #parts > 0 then return message_of(room, flow, run, parts) end
            forget_run(room, flow, run)
        end
    end

    -- Forgets the first messages of a run in a flow, whose next turn is as given; without one it keeps its own.
    function forget_plain(room, flow, run, calls, turn)
        local list = plain_list(room, flow, run)
        redis.call('LTRIM', list, calls * PARTS, -1)
        count_plain(room, -calls)
        if redis.call('EXISTS', list) == 0 then
            forget_run(room, flow, run)
        elseif turn then
            redis.call('ZADD', line_of(room, flow), turn, run)
        end
        room.has_waiting = nil
    end

    -- Sends on, to be ended, up to `most` of the messages that stand so in the index: those past their deadlines. How many.
    function send_off_plain(room, index, most)
        local flow, run, list = plain_at(room, index)
        local sent, ends_ms = 0, math.huge
        while flow do
            local parts = redis.call('LRANGE', list, 0, PARTS - 1)
            ends_ms = parts[1] and wanted_until(parts[PARTS]) or math.huge
            if sent == most or ends_ms > now_ms() then break end
            send(room, (message_of(room, flow, run, parts)), '', EXPIRED)
            forget_plain(room, flow, run, 1)
            sent = sent + 1
        end
        -- It was that of the first one that has waited there; now it is that of the first.
        if ends_ms == math.huge then
            redis.call('ZREM', room.ends, index)
        else
            redis.call('ZADD', room.ends, string.format('%.0f', ends_ms), index)
        end
        if flow and redis.call('EXISTS', line_of(room, flow)) == 0 then forget_flow(room, flow) end
        return sent
    end
end
