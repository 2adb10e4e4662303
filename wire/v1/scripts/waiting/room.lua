-- The waiting room of a queue: messages that may not go into their streams yet, and the order in which they will.
-- Start-time fair queueing over tenants (Goyal, Vin, Cheng 1996), in turn over the flows of a tenant, and start-time
-- fair again over the runs in a flow. A flow has one level, one tenant and the same gates; at a shut gate it waits
-- aside and holds up nobody. What is plain waits in flows of its own, in which runs take turns. Begins other scripts,
-- behind home.lua, slots.lua, words.lua and gates.lua, with turns.lua (whose turn it is), lines.lua (who waits in a flow),
-- aside.lua (who waits at a shut gate), plain.lua (who waits plainly), rounds.lua (many of those that go on at once),
-- moving.lua (who goes on), mending.lua (what anybody has written over) and freeing.lua (places given up).
--
-- This file: what a room is, and how many calls its workers take.

local LEVELS = {'0', '3', '6'}

-- How many plain messages wait, as the room's state has it for people to read.
local PLAIN_WAITING = 'plain'

local rooms = {}
local function room_for(namespace, queue)
    local room = rooms[namespace .. ':' .. queue]
    if not room then
        room = {
            namespace = namespace,
            queue = queue,
            state = namespace .. ROOM .. queue,
            calls = namespace .. ROOM_CALLS .. queue,
            plain = namespace .. ROOM_PLAIN .. queue,
            runs = namespace .. ROOM_RUNS .. queue,
            openings = namespace .. ROOM_OPENINGS .. queue,
            ends = namespace .. ROOM_ENDS .. queue,
            told = namespace .. ROOM_TOLD .. queue,
            lengths = {},
            heads = {},
            finishes = {},
        }
        rooms[namespace .. ':' .. queue] = room
    end
    return room
end

-- The room of a stream and its level; nil for what is no queue's. A lane has that of its queue.
local function room_of(stream)
    local namespace, queue, level = home_of(stream)
    if queue then return room_for(namespace, queue), level end
end

local function turns_of(room, level) return room.namespace .. ROOM_TURNS .. room.queue .. ':' .. level end
local function shares_of(room, level) return room.namespace .. ROOM_SHARES .. room.queue .. ':' .. level end
local function aside_at(room, gate) return room.namespace .. ROOM_ASIDE .. room.queue .. ':' .. gate end
local function flows_of(room, level, tenant)
    return room.namespace .. ROOM_FLOWS .. room.queue .. ':' .. level .. ':' .. tenant
end

local function flow_named(level, tenant, gates) return level .. ':' .. #tenant .. ':' .. tenant .. gates end
-- What a flow of plain messages has before the text of its gates. No such text begins so.
local PLAIN = '~'
-- Its level, its tenant, the text of its gates, and whether it is one of plain messages; nil for what is no flow: anybody may
-- have written into the sets. Many that wait one behind the other have the same.
local flow_parts
do
    local known, level, tenant, text, is_plain
    function flow_parts(flow)
        if not flow or flow ~= known then
            local its_level, size, rest = string.match(flow or '', '^([036]):(%d+):(.*)$')
            if not its_level or tonumber(size) > #rest then return nil end
            size = tonumber(size)
            known, level, tenant, text = flow, its_level, string.sub(rest, 1, size), string.sub(rest, size + 1)
            is_plain = string.sub(text, 1, #PLAIN) == PLAIN
            if is_plain then text = string.sub(text, #PLAIN + 1) end
        end
        return level, tenant, text, is_plain
    end
end

-- Who waits in a flow: calls, or the runs of plain ones.
local function line_of(room, flow)
    local _, _, _, is_plain = flow_parts(flow)
    return room.namespace .. (is_plain and ROOM_PLAIN_RUNS or ROOM_LINE) .. room.queue .. ':' .. flow
end

-- Whether anybody waits. Remembered until somebody goes.
local function has_waiting(room)
    if room.has_waiting == nil then room.has_waiting = redis.call('EXISTS', room.calls, room.plain) > 0 end
    return room.has_waiting
end

-- How far each level has come in virtual time, and how many moves there were; `keep` writes it back.
local function times_of(room)
    if not room.times then
        local fields = {'moves'}
        for _, level in ipairs(LEVELS) do fields[#fields + 1] = level end
        local found = redis.call('HMGET', room.state, unpack(fields))
        room.times = {}
        for i, field in ipairs(fields) do room.times[field] = number(found[i]) or 0 end
    end
    return room.times
end

local function keep(room)
    if not room.moved then return end
    local values = {}
    for field, value in pairs(times_of(room)) do
        values[#values + 1] = field
        values[#values + 1] = value
    end
    redis.call('HSET', room.state, unpack(values))
    for _, level in ipairs(LEVELS) do
        -- A share that lies behind is no advantage any more.
        redis.call('ZREMRANGEBYSCORE', shares_of(room, level), '-inf', room.times[level])
    end
    if not has_waiting(room) then
        for _, level in ipairs(LEVELS) do redis.call('DEL', shares_of(room, level)) end
        redis.call('DEL', room.told)
        redis.call('HDEL', room.state, 'arrivals', PLAIN_WAITING, unpack(LEVELS))
        room.times = nil
    end
    room.moved = false
end

-- How many calls live workers take at once; 0 while none has told.
local function slots_of(room)
    room.slots = room.slots or slots_told(room.state)
    return room.slots
end

local function note_worker(room, consumer, slots)
    local workers = room.namespace .. ROOM_WORKERS .. room.queue
    redis.call('HSET', workers, consumer, slots .. ' ' .. string.format('%.0f', now_ms() + WORD_MS))
    redis.call('PEXPIRE', workers, WORD_MS)
    count_slots(room.namespace, room.queue)
end

local function length_of(room, stream)
    room.lengths[stream] = room.lengths[stream] or redis.call('XLEN', stream)
    return room.lengths[stream]
end

-- Whether a message without gates may go straight into its stream.
local function has_room(room, stream)
    if has_waiting(room) then return false end
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
