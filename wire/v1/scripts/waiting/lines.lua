-- The lines of a room, one for each flow: the messages that wait, in turn by their runs. Begins other scripts, behind
-- turns.lua.

local function is_read(readers)
    local count = readers ~= '' and redis.pcall('ZCOUNT', readers, now_ms(), '+inf')
    return type(count) == 'number' and count > 0
end

-- Sends a message on into its stream, or into the lane that it is for while anybody reads that. Where it is there. With
-- `over` it goes to be ended only: a word that tells its worker why.
local function send(room, message, gates, over)
    local stream = is_read(message.readers) and message.lane or message.stream
    local fields = message.fields
    local last = #fields
    if gates ~= '' then
        fields[last + 1], fields[last + 2], fields[last + 3] = 'gates', gates, 'waits_as'
        fields[last + 4] = as_waiting(now_ms(), message.ends_ms, as_who(message.tenant, message.run))
        last = last + 4
    end
    if over then fields[last + 1], fields[last + 2] = 'over', over end
    local id = redis.call('XADD', stream, '*', unpack(fields))
    if message.held_as and field_of(fields, 'id') then
        -- It was with a worker before, and its claim was kept under this name.
        local claim = room.namespace .. CLAIM .. field_of(fields, 'id')
        if redis.pcall('GET', claim) == message.held_as then redis.call('SET', claim, id, 'XX', 'KEEPTTL') end
    end
    if room.lengths[stream] then room.lengths[stream] = room.lengths[stream] + 1 end
    return stream .. ' ' .. id
end

-- Of calls with one tag the one goes first that came first: in a line's scores the tag stands before the point, and the
-- arrival behind it.
local function tag_of(score) return score and math.floor(tonumber(score)) end

local arrival_in
do
    local ARRIVALS_AT_ONCE, ARRIVALS_MAX = 100, 2 ^ 22
    function arrival_in(room)
        if not room.arrival or room.arrival == room.last_arrival then
            local last = redis.pcall('HINCRBY', room.state, 'arrivals', ARRIVALS_AT_ONCE)
            if type(last) ~= 'number' then  -- somebody has written there
                redis.call('HDEL', room.state, 'arrivals')
                last = redis.call('HINCRBY', room.state, 'arrivals', ARRIVALS_AT_ONCE)
            end
            room.arrival, room.last_arrival = last - ARRIVALS_AT_ONCE, last
        end
        room.arrival = room.arrival + 1
        return room.arrival % ARRIVALS_MAX / ARRIVALS_MAX
    end
end

local function count_copy(room) redis.pcall('HINCRBY', room.namespace .. COUNTERS, 'duplicate_messages', 1) end

-- The flow, the run, the deadline, the lane's readers, the lane and the fields of a message that waits; nil where anybody
-- else has written there.
local FIELDS_MAX = 100
local function unpacked(packed)
    local readable, parts = pcall(cmsgpack.unpack, packed or '')
    if not readable or type(parts) ~= 'table' then return nil end
    local fields = parts[6]
    for i = 1, 5 do
        if type(parts[i]) ~= (i == 3 and 'number' or 'string') then return nil end
    end
    if not flow_parts(parts[1]) or not number(parts[3]) or type(fields) ~= 'table' then return nil end
    if #fields < 2 or #fields > FIELDS_MAX or #fields % 2 == 1 then return nil end
    for _, part in ipairs(fields) do
        if type(part) ~= 'string' then return nil end
    end
    return parts[1], parts[2], parts[3], parts[4], parts[5], fields
end

local let_wait
do
    -- The tag of the first in a line, nil if nobody waits there, and that from which a run's next call counts. Both are
    -- remembered while a script only lets messages wait: many of a batch have the same.
    local function head_tag(room, flow)
        if not room.heads[flow] then
            room.heads[flow] = tag_of(redis.call('ZRANGE', line_of(room, flow), 0, 0, 'WITHSCORES')[2])
        end
        return room.heads[flow]
    end

    local function finish_of(room, field)
        if not room.finishes[field] then room.finishes[field] = tonumber(redis.call('HGET', room.runs, field) or 0) end
        return room.finishes[field]
    end

    -- The tag of the next call of a run in a line, and whether nobody waits there. Remembered, not written.
    local function tag_behind(room, flow, run)
        local head, field = head_tag(room, flow), flow .. ' ' .. run
        local tag = math.max(head or 0, finish_of(room, field))
        room.finishes[field] = tag + 1
        room.heads[flow] = math.min(head or tag, tag)
        return tag, not head
    end

    local function packed_message(flow, message)
        return cmsgpack.pack({flow, message.run, message.ends_ms, message.readers, message.lane, message.fields})
    end

    -- Of two messages of a call that waits the one is kept that a worker has had, in the place of the other: it knows of its
    -- attempts, and the call's claim names it.
    local function replace_copy(room, flow, message)
        local known = unpacked(redis.call('HGET', room.calls, message.call))
        redis.call('HSET', room.calls, message.call, packed_message(known or flow, message))
    end

    -- Lets a message wait. A second one of a call that waits is a copy, and dropped.
    function let_wait(room, level, message)
        local flow = flow_named(level, message.tenant, message.gates)
        if redis.call('HSETNX', room.calls, message.call, packed_message(flow, message)) == 0 then
            if message.is_first then replace_copy(room, flow, message) end
            count_copy(room)
            return
        end
        local tag, is_alone
        if message.is_first then
            local head = head_tag(room, flow)
            tag, is_alone = (head or 1) - 1, not head
            room.heads[flow] = tag
            redis.call('ZADD', flows_of(room, level, message.tenant), 'XX', OWED, flow)
        else
            tag, is_alone = tag_behind(room, flow, message.run)
            redis.call('HSET', room.runs, flow .. ' ' .. message.run, tag + 1)
        end
        redis.call('ZADD', line_of(room, flow), string.format('%.17g', tag + arrival_in(room)), message.call)
        if message.ends_ms > 0 then redis.call('ZADD', room.ends, string.format('%.0f', message.ends_ms), message.call) end
        room.has_waiting = true
        if is_alone then activate(room, flow, message.is_first and OWED or times_of(room).moves) end
    end
end

-- Forgets a call that waits, and its run with the last of its calls: that has an advantage only against those that wait
-- beside it.
local function forget(room, flow, run, call, tag)
    redis.call('HDEL', room.calls, call)
    redis.call('ZREM', line_of(room, flow), call)
    redis.call('ZREM', room.ends, call)
    room.has_waiting = nil
    local field = flow .. ' ' .. run
    if (tonumber(redis.call('HGET', room.runs, field)) or 0) <= tag + 1 then redis.call('HDEL', room.runs, field) end
end

local function stream_of(room, level) return room.namespace .. QUEUE .. room.queue .. ':' .. level end

local message_in
do
    -- Whether a stream is a lane of this room's queue, at this level.
    local function is_lane_of(room, level, lane)
        local home, its_level = room_of(lane)
        return home == room and its_level == level
    end

    -- The message of a call that waits. What cannot be read goes to a worker, which will bury it. Wherever it says that it is
    -- for, it goes to a stream of this queue.
    function message_in(room, level, packed)
        local flow, run, ends_ms, readers, lane, fields = unpacked(packed)
        if not flow then
            return {
                run = '', tenant = '', ends_ms = 0, readers = '', stream = stream_of(room, level),
                fields = {'raw', packed or ''}}
        end
        local own_level, tenant = flow_parts(flow)
        return {
            run = run, tenant = tenant, ends_ms = ends_ms, lane = lane,
            readers = readers ~= '' and is_lane_of(room, own_level, lane) and readers or '',
            stream = stream_of(room, own_level), fields = fields, held_as = field_of(fields, 'held_as'), flow = flow,
        }
    end
end

-- The first call of a flow: its id, its message and its tag; nil where nobody waits.
local function first_of(room, level, flow)
    local head = redis.call('ZRANGE', line_of(room, flow), 0, 0, 'WITHSCORES')
    if head[1] then return head[1], message_in(room, level, redis.call('HGET', room.calls, head[1])), tag_of(head[2]) end
end

-- Why nobody wants a call any more, if so. Its worker ends it by this word; it need not pass any gate for that.
local EXPIRED = 'expired'
local function has_expired(ends_ms) return ends_ms > 0 and ends_ms <= now_ms() and EXPIRED or nil end
local function over(room, call, ends_ms)
    return has_expired(ends_ms) or (redis.call('EXISTS', room.namespace .. CANCELLED .. call) == 1 and 'cancelled') or nil
end
