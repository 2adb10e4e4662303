-- The waiting room of a queue: messages that may not go into their streams yet, and the order in which they will.
-- Start-time fair queueing over tenants (Goyal, Vin, Cheng 1996), in turn over the flows of a tenant, and start-time
-- fair again over the runs in a flow. A flow has one level, one tenant and the same gates; at a shut gate it waits
-- aside and holds up nobody. Begins other scripts, behind gates.lua.

local LEVELS = {'0', '3', '6'}
-- One of so many moves looks at lower levels first, so that batch work goes on while people keep the queue busy.
local LOWER_FIRST_EVERY, MIDDLE_FIRST, LOWEST_FIRST = 20, {'3', '0', '6'}, {'6', '3', '0'}
-- As many calls as may be in a stream while no worker has told how many it takes.
local UNKNOWN_SLOTS = 4
-- A worker tells every few seconds how many calls it takes; its word lasts for so long.
local WORD_MS = 20000
-- Flows that one script may find shut, and gates that it may open, beside what it moves.
local LOOKS_MAX = 200

local rooms = {}
local function room_for(namespace, queue)
    local room = rooms[namespace .. ':' .. queue]
    if not room then
        room = {
            namespace = namespace,
            queue = queue,
            state = namespace .. ROOM .. queue,
            calls = namespace .. ROOM_CALLS .. queue,
            runs = namespace .. ROOM_RUNS .. queue,
            openings = namespace .. ROOM_OPENINGS .. queue,
            lengths = {},
        }
        rooms[namespace .. ':' .. queue] = room
    end
    return room
end

-- The room of a stream and its level; nil for what is no queue's, or a lane's.
local function room_of(stream)
    local namespace, queue, level = string.match(stream, '^(.-)' .. QUEUE .. '(.+):(%d+)$')
    if queue then return room_for(namespace, string.gsub(queue, '%.lane%-%x+$', '')), level end
end

local function turns_of(room, level) return room.namespace .. ROOM_TURNS .. room.queue .. ':' .. level end
local function shares_of(room, level) return room.namespace .. ROOM_SHARES .. room.queue .. ':' .. level end
local function line_of(room, flow) return room.namespace .. ROOM_LINE .. room.queue .. ':' .. flow end
local function aside_at(room, gate) return room.namespace .. ROOM_ASIDE .. room.queue .. ':' .. gate end
local function flows_of(room, level, tenant)
    return room.namespace .. ROOM_FLOWS .. room.queue .. ':' .. level .. ':' .. tenant
end

local function flow_named(level, tenant, gates) return level .. ':' .. #tenant .. ':' .. tenant .. gates end
local function flow_parts(flow)
    local level, size, rest = string.match(flow, '^(%d+):(%d+):(.*)$')
    return level, string.sub(rest, 1, tonumber(size)), string.sub(rest, tonumber(size) + 1)
end

local function waiting_in(room)
    room.waiting = room.waiting or redis.call('HLEN', room.calls)
    return room.waiting
end

-- How far each level has come in virtual time, and how many moves there were; `keep` writes it back.
local function times_of(room)
    if not room.times then
        local fields = {'moves'}
        for _, level in ipairs(LEVELS) do fields[#fields + 1] = level end
        local found = redis.call('HMGET', room.state, unpack(fields))
        room.times = {}
        for i, field in ipairs(fields) do room.times[field] = tonumber(found[i]) or 0 end
    end
    return room.times
end

local function keep(room)
    if not room.moved then return end
    local values = {}
    for field, value in pairs(room.times) do
        values[#values + 1] = field
        values[#values + 1] = value
    end
    redis.call('HSET', room.state, unpack(values))
    for _, level in ipairs(LEVELS) do
        -- A share that lies behind is no advantage any more.
        redis.call('ZREMRANGEBYSCORE', shares_of(room, level), '-inf', room.times[level])
    end
    if redis.call('HLEN', room.calls) == 0 then
        for _, level in ipairs(LEVELS) do redis.call('DEL', shares_of(room, level)) end
        redis.call('HDEL', room.state, unpack(LEVELS))
        room.times = nil
    end
    room.moved = false
end

-- How many calls live workers take at once; 0 while none has told.
local function slots_of(room)
    if not room.slots then
        local slots, until_ms = unpack(redis.call('HMGET', room.state, 'slots', 'slots_until'))
        room.slots = slots and tonumber(until_ms) > now_ms() and tonumber(slots) or 0
    end
    return room.slots
end

local function note_worker(room, consumer, slots)
    local now, sum = now_ms(), 0
    local workers = room.namespace .. ROOM_WORKERS .. room.queue
    redis.call('HSET', workers, consumer, slots .. ' ' .. string.format('%.0f', now + WORD_MS))
    redis.call('PEXPIRE', workers, WORD_MS)
    local told = redis.call('HGETALL', workers)
    for i = 1, #told, 2 do
        local takes, until_ms = string.match(told[i + 1], '^(%d+) (%d+)$')
        if not takes or tonumber(until_ms) <= now then
            redis.call('HDEL', workers, told[i])
        else
            sum = sum + tonumber(takes)
        end
    end
    redis.call('HSET', room.state, 'slots', sum, 'slots_until', string.format('%.0f', now + WORD_MS))
end

local function length_of(room, stream)
    room.lengths[stream] = room.lengths[stream] or redis.call('XLEN', stream)
    return room.lengths[stream]
end

-- Whether a message without gates may go straight into its stream.
local function has_room(room, stream)
    if waiting_in(room) > 0 then return false end
    local length = length_of(room, stream)
    return length < UNKNOWN_SLOTS or length < slots_of(room)
end

-- How many more calls the workers could take now.
local function free_slots(room)
    local free = slots_of(room)
    for _, level in ipairs(LEVELS) do
        free = free - length_of(room, room.namespace .. QUEUE .. room.queue .. ':' .. level)
    end
    return free
end

local tenants = {}
local function terms_of_tenant(room, tenant)
    local terms = tenants[tenant]
    if not terms then
        local text = tenant ~= '' and redis.call('HGET', room.namespace .. TENANTS, tenant)
        local said = text and decoded(text) or {}
        terms = {
            weight = positive(said.weight) or 1,
            guaranteed = positive(said.guaranteed) or 0,
            ceiling = positive(said.ceiling),
        }
        tenants[tenant] = terms
    end
    return terms
end

-- A tenant with a ceiling or a guarantee has its running calls counted, by a gate that each of them passes.
local function gate_of_tenant(room, tenant)
    local terms = terms_of_tenant(room, tenant)
    if not terms.ceiling and terms.guaranteed == 0 then return nil end
    return {'concurrency', '@' .. room.queue, 'tenant=' .. tenant, terms.ceiling or 1e15, 0}
end

-- All gates of a call of this flow, and their text.
local function gates_of(room, tenant, text)
    local gates, own = gates_in(text), gate_of_tenant(room, tenant)
    if not own then return gates, text end
    local all = {unpack(gates)}
    all[#all + 1] = own
    return all, cjson.encode(all)
end

-- The virtual time at which a tenant's next call starts.
local function fair_start(room, level, tenant)
    local finish = tonumber(redis.call('ZSCORE', shares_of(room, level), tenant)) or 0
    return math.max(times_of(room)[level], finish)
end

-- The same, or before all others while it has less than it is guaranteed.
local OWED = -1
local function start_of(room, level, tenant)
    local guaranteed = terms_of_tenant(room, tenant).guaranteed
    if guaranteed > 0 then
        local holders = terms_of(room.namespace, gate_of_tenant(room, tenant)).holders
        if redis.call('HLEN', holders) < guaranteed then return OWED end
    end
    return fair_start(room, level, tenant)
end

local function activate(room, flow, score)
    local level, tenant = flow_parts(flow)
    redis.call('ZADD', flows_of(room, level, tenant), score, flow)
    redis.call('ZADD', turns_of(room, level), 'NX', start_of(room, level, tenant), tenant)
end

local function deactivate(room, level, tenant, flow)
    redis.call('ZREM', flows_of(room, level, tenant), flow)
    if redis.call('EXISTS', flows_of(room, level, tenant)) == 0 then
        redis.call('ZREM', turns_of(room, level), tenant)
    end
end

-- Sends a message on into its stream, or into the lane that it is for while anybody reads that. The id it has there.
local function send(room, message, gates)
    local stream = message.stream
    if message.readers ~= '' and redis.call('ZCOUNT', message.readers, now_ms(), '+inf') > 0 then
        stream = message.lane
    end
    local fields = message.fields
    if gates ~= '' then
        fields[#fields + 1] = 'gates'
        fields[#fields + 1] = gates
    end
    local id = redis.call('XADD', stream, '*', unpack(fields))
    if message.held_as then
        -- It was with a worker before, and its claim was kept under this name.
        local claim = room.namespace .. CLAIM .. field_of(fields, 'id')
        if redis.pcall('GET', claim) == message.held_as then redis.call('SET', claim, id, 'XX', 'KEEPTTL') end
    end
    if room.lengths[stream] then room.lengths[stream] = room.lengths[stream] + 1 end
    return stream .. ' ' .. id
end

-- Lets a message wait. A second one of a call that waits is a copy, and dropped.
local function let_wait(room, level, message)
    local flow = flow_named(level, message.tenant, message.gates)
    local packed = cmsgpack.pack({
        flow, message.run, message.ends_ms, message.readers, message.lane, message.stream, message.fields})
    if redis.call('HSETNX', room.calls, message.call, packed) == 0 then
        redis.call('HINCRBY', room.namespace .. COUNTERS, 'duplicate_messages', 1)
        return
    end
    local line = line_of(room, flow)
    local head = redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
    local finish = tonumber(redis.call('HGET', room.runs, flow .. ' ' .. message.run) or 0)
    local tag = math.max(tonumber(head[2] or 0), finish)
    if message.is_first then
        redis.call('ZADD', line, tonumber(head[2] or 1) - 1, message.call)
    else
        redis.call('ZADD', line, tag, message.call)
        redis.call('HSET', room.runs, flow .. ' ' .. message.run, tag + 1)
    end
    room.waiting = waiting_in(room) + 1
    if not head[1] then activate(room, flow, times_of(room).moves) end
end

local function forget(room, flow, run, call, tag)
    redis.call('HDEL', room.calls, call)
    redis.call('ZREM', line_of(room, flow), call)
    room.waiting = waiting_in(room) - 1
    local field = flow .. ' ' .. run
    -- Its last one: a run has an advantage only against those that wait beside it.
    if tonumber(redis.call('HGET', room.runs, field) or 0) <= tag + 1 then redis.call('HDEL', room.runs, field) end
end

-- Brings as many flows back from a gate as may pass it now, those first that have waited longest by the virtual time.
local function reopen(room, name)
    local aside = aside_at(room, name)
    local first = redis.call('ZRANGE', aside, 0, 0)[1]
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
        local flows = redis.call('ZPOPMIN', aside, math.min(math.floor(places), LOOKS_MAX))
        for i = 1, #flows, 2 do activate(room, flows[i], OWED) end
    end
    if redis.call('EXISTS', aside) == 0 then
        redis.call('ZREM', room.openings, name)
    else
        redis.call('ZADD', room.openings, string.format('%.0f', math.max(again_ms, now_ms() + 1)), name)
    end
end

local function reopen_due(room)
    local due = redis.call('ZRANGEBYSCORE', room.openings, '-inf', now_ms(), 'LIMIT', 0, LOOKS_MAX)
    for _, name in ipairs(due) do reopen(room, name) end
end

-- Puts a flow aside until a gate opens. The place that it found free at another one is for who waits there.
local function set_aside(room, flow, start, gates, shut, again_ms)
    local level, tenant = flow_parts(flow)
    deactivate(room, level, tenant, flow)
    redis.call('ZADD', aside_at(room, gate_name(shut)), start, flow)
    redis.call('ZADD', room.openings, 'NX', string.format('%.0f', again_ms), gate_name(shut))
    for _, gate in ipairs(gates) do
        if gate ~= shut and redis.call('EXISTS', aside_at(room, gate_name(gate))) == 1 then
            reopen(room, gate_name(gate))
        end
    end
end

-- The level and the tenant whose turn it is, and its start.
local function next_turn(room)
    local at, levels = times_of(room).moves % LOWER_FIRST_EVERY, LEVELS
    if at == LOWER_FIRST_EVERY - 1 then
        levels = LOWEST_FIRST
    elseif at == LOWER_FIRST_EVERY / 2 - 1 then
        levels = MIDDLE_FIRST
    end
    for _, level in ipairs(levels) do
        local first = redis.call('ZRANGE', turns_of(room, level), 0, 0, 'WITHSCORES')
        if first[1] then return level, first[1], tonumber(first[2]) end
    end
end

-- Whether nobody wants a call any more. Its worker says so; it need not pass any gate for that.
local function is_over(room, call, ends_ms)
    return (ends_ms > 0 and ends_ms <= now_ms()) or redis.call('EXISTS', room.namespace .. CANCELLED .. call) == 1
end

-- What becomes of a tenant's turn, and of the flow that had it, once a call has gone.
local function charge(room, level, tenant, flow, start)
    local times = times_of(room)
    if start == OWED then start = fair_start(room, level, tenant) end
    redis.call('ZADD', shares_of(room, level), start + 1 / terms_of_tenant(room, tenant).weight, tenant)
    times[level] = math.max(times[level], start)
    times.moves = times.moves + 1
    if redis.call('EXISTS', line_of(room, flow)) == 1 then
        redis.call('ZADD', flows_of(room, level, tenant), times.moves, flow)
    else
        redis.call('ZREM', flows_of(room, level, tenant), flow)
    end
end

local function take_next_turn(room, level, tenant)
    if redis.call('EXISTS', flows_of(room, level, tenant)) == 1 then
        redis.call('ZADD', turns_of(room, level), start_of(room, level, tenant), tenant)
    else
        redis.call('ZREM', turns_of(room, level), tenant)
    end
end

-- The message of a call that waits. What cannot be read goes to a worker, which will bury it.
local function message_of(room, level, call)
    local packed = redis.call('HGET', room.calls, call) or ''
    local readable, parts = pcall(cmsgpack.unpack, packed)
    local fields = readable and type(parts) == 'table' and parts[7]
    if type(fields) == 'table' then
        return {
            run = parts[2], ends_ms = parts[3], readers = parts[4], lane = parts[5], stream = parts[6], fields = fields,
            held_as = field_of(fields, 'held_as'),
        }
    end
    local stream = room.namespace .. QUEUE .. room.queue .. ':' .. level
    return {run = '', ends_ms = 0, readers = '', stream = stream, fields = {'raw', packed}}
end

-- The call of a tenant that is next: its flow, its id and its tag. Forgets a flow that has none.
local function head_of(room, level, tenant)
    local flow = redis.call('ZRANGE', flows_of(room, level, tenant), 0, 0)[1]
    if not flow then return nil end
    local head = redis.call('ZRANGE', line_of(room, flow), 0, 0, 'WITHSCORES')
    if head[1] then return flow, head[1], tonumber(head[2]) end
    redis.call('ZREM', flows_of(room, level, tenant), flow)
end

-- Moves the next call of a tenant, if it may go. 1 or 0.
local function move_one(room, level, tenant, start)
    local flow, call, tag = head_of(room, level, tenant)
    if not flow or (start == OWED and start_of(room, level, tenant) ~= OWED) then
        take_next_turn(room, level, tenant)
        return 0
    end
    local message = message_of(room, level, call)
    if is_over(room, call, message.ends_ms) then
        send(room, message, '')
    else
        local _, _, text = flow_parts(flow)
        local gates, all = gates_of(room, tenant, text)
        local shut, again_ms = first_shut(room.namespace, gates, now_ms(), call)
        if shut then
            set_aside(room, flow, start, gates, shut, again_ms)
            return 0
        end
        pass(room.namespace, gates, now_ms(), call, send(room, message, all))
    end
    forget(room, flow, message.run, call, tag)
    charge(room, level, tenant, flow, start)
    take_next_turn(room, level, tenant)
    return 1
end

-- Moves up to `most` messages that are due and permitted into their streams. How many, and whether it has looked at all.
local function admit(room, most)
    if waiting_in(room) == 0 then return 0, true end
    reopen_due(room)
    local moved, looks = 0, 0
    while moved < most and looks < LOOKS_MAX + most do
        local level, tenant, start = next_turn(room)
        if not level then break end
        room.moved = true
        moved = moved + move_one(room, level, tenant, start)
        looks = looks + 1
    end
    keep(room)
    return moved, looks < LOOKS_MAX + most
end

-- Frees the places that a call had, and brings back who waits for them.
local function free(room, text, call)
    for _, gate in ipairs(gates_in(text)) do
        local name = gate_name(gate)
        if gate[1] == 'concurrency' and redis.call('HDEL', room.namespace .. HOLDERS .. name, call) == 1
            and waiting_in(room) > 0 then
            if redis.call('EXISTS', aside_at(room, name)) == 1 then reopen(room, name) end
            local tenant = gate[2] == '@' .. room.queue and string.match(gate[3], '^tenant=(.*)$')
            for _, level in ipairs(tenant and LEVELS or {}) do
                if redis.call('ZSCORE', turns_of(room, level), tenant) then take_next_turn(room, level, tenant) end
            end
        end
    end
end

-- Does something with a room where a failure must not keep the script from what else it does. It is counted.
local function safely(room, work, ...)
    if not pcall(work, room, ...) then
        redis.pcall('HINCRBY', room.namespace .. COUNTERS, 'waiting_room_failures', 1)
    end
end
