-- The lines of a room, one for each flow: the messages that wait, in turn by their runs. Begins other scripts, behind
-- turns.lua.

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

-- The tag of the first in a line, nil if nobody waits there, and that from which a run's next call counts. Both are
-- remembered while a script only lets messages wait: many of a batch have the same.
local function head_tag(room, flow)
    if not room.heads[flow] then
        room.heads[flow] = tonumber(redis.call('ZRANGE', line_of(room, flow), 0, 0, 'WITHSCORES')[2])
    end
    return room.heads[flow]
end

local function finish_of(room, field)
    if not room.finishes[field] then room.finishes[field] = tonumber(redis.call('HGET', room.runs, field) or 0) end
    return room.finishes[field]
end

local function count_copy(room) redis.call('HINCRBY', room.namespace .. COUNTERS, 'duplicate_messages', 1) end

local function packed_message(flow, message)
    return cmsgpack.pack({
        flow, message.run, message.ends_ms, message.readers, message.lane, message.stream, message.fields})
end

-- Of two messages of a call that waits the one is kept that a worker has had, in the place of the other: it knows of its
-- attempts, and the call's claim names it.
local function replace_copy(room, flow, message)
    local readable, parts = pcall(cmsgpack.unpack, redis.call('HGET', room.calls, message.call))
    local known = readable and type(parts) == 'table' and type(parts[1]) == 'string'
    redis.call('HSET', room.calls, message.call, packed_message(known and parts[1] or flow, message))
end

-- Lets a message wait. A second one of a call that waits is a copy, and dropped.
local function let_wait(room, level, message)
    local flow = flow_named(level, message.tenant, message.gates)
    if redis.call('HSETNX', room.calls, message.call, packed_message(flow, message)) == 0 then
        if message.is_first then replace_copy(room, flow, message) end
        count_copy(room)
        return
    end
    local line, head = line_of(room, flow), head_tag(room, flow)
    local tag = head or 0
    if message.is_first then
        tag = (head or 1) - 1
    else
        local finish = finish_of(room, flow .. ' ' .. message.run)
        tag = math.max(tag, finish)
        room.finishes[flow .. ' ' .. message.run] = tag + 1
        redis.call('HSET', room.runs, flow .. ' ' .. message.run, tag + 1)
    end
    redis.call('ZADD', line, tag, message.call)
    if message.ends_ms > 0 then redis.call('ZADD', room.ends, string.format('%.0f', message.ends_ms), message.call) end
    room.heads[flow] = math.min(head or tag, tag)
    room.waiting = waiting_in(room) + 1
    if not head then activate(room, flow, times_of(room).moves) end
end

-- Forgets a run whose last call has gone: it has an advantage only against those that wait beside it.
local function forget_run(room, field, tag)
    if tonumber(redis.call('HGET', room.runs, field) or 0) <= tag + 1 then redis.call('HDEL', room.runs, field) end
end

local function forget(room, flow, run, call, tag)
    redis.call('HDEL', room.calls, call)
    redis.call('ZREM', line_of(room, flow), call)
    redis.call('ZREM', room.ends, call)
    room.waiting = waiting_in(room) - 1
    forget_run(room, flow .. ' ' .. run, tag)
end

-- The message of a call that waits. What cannot be read goes to a worker, which will bury it.
local function message_in(room, level, packed)
    packed = packed or ''
    local readable, parts = pcall(cmsgpack.unpack, packed)
    local fields = readable and type(parts) == 'table' and parts[7]
    if type(fields) == 'table' then
        return {
            run = parts[2], ends_ms = parts[3], readers = parts[4], lane = parts[5], stream = parts[6], fields = fields,
            held_as = field_of(fields, 'held_as'), flow = parts[1],
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
