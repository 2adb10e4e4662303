-- Adds messages to their streams or lets them wait in their queue's room: what publish.lua does when not all of them may
-- go straight on. ARGV and the reply are those of publish.lua. Begins behind kinds.lua, room.lua and entering.lua.

-- Workers that have room for more let it in themselves.
local ADMITTED_MAX = 100
local crowded = {}

-- The gates of a message, as JSON; empty where it has none.
local function gates_at(i)
    local kind = kinds[tonumber(ARGV[i + 10])]
    return kind and ARGV[kind] or ''
end

-- The calls with limits that hold no place yet, by their texts of gates: asked for all of a batch at once. Of the others,
-- and of a second message of one, it is looked at by itself whether it is a copy.
local news = {}
local function look_for_copies()
    local calls, seen = {}, {}
    for i = first, #ARGV, 12 do
        local call, text = ARGV[i + 6], gates_at(i)
        if text ~= '' then
            local namespace = home_of(ARGV[i + 2])
            calls[namespace] = calls[namespace] or {}
            local those = calls[namespace][text] or {}
            calls[namespace][text] = those
            if not seen[call] then those[#those + 1] = call end
            seen[call] = true
        end
    end
    for namespace, by_text in pairs(calls) do
        for text, those in pairs(by_text) do
            local gates = gates_in(text)
            local known = #those > 0 and #gates > 0 and known_among(namespace, gates, those) or {}
            for i, call in ipairs(those) do news[call] = not known[i] and text or nil end
        end
    end
end

local function may_be_copy(message)
    local is_new = news[message.call] == message.gates
    news[message.call] = nil
    return not is_new
end

local function let_wait_in_turn(room, level, message)
    let_wait(room, level, message)
    crowded[room] = true
end

local function publish_free(room, level, message)
    if message.readers ~= '' or has_room(room, message.stream) then
        send(room, message, '')
    else
        let_wait_in_turn(room, level, message)
    end
end

local function publish_bound(room, level, message)
    local gates, text = gates_of(room, message.tenant, message.gates)
    if may_be_copy(message) and is_copy(room.namespace, gates, message.call) then
        count_copy(room)
    elseif waiting_in(room) > 0 or free_slots(room) < 1
        or first_shut(room.namespace, gates, now_ms(), message.call) then
        let_wait_in_turn(room, level, message)
    else
        pass(room.namespace, gates, now_ms(), message.call, send(room, message, text), message.ends_ms)
    end
end

local function publish(message)
    local room, level = room_of(message.stream)
    local is_bound = message.gates ~= '' or gate_of_tenant(room, message.tenant) ~= nil
    local how = is_bound and publish_bound or publish_free
    how(room, level, message)
end

-- Once more where the room was not what it should be. What half a try has left of the call goes first.
local function publish_whatever_is_there(message)
    local is_done, failure = pcall(publish, message)
    if is_done then return end
    local room, level = room_of(message.stream)
    count_failure(room)
    local flow = flow_named(level, message.tenant, message.gates)
    redis.pcall('HDEL', room.calls, message.call)
    redis.pcall('ZREM', line_of(room, flow), message.call)
    local looked, may_again = pcall(mend, room, level, message.tenant, message.gates)
    if not (looked and may_again) then error(failure, 0) end
    publish(message)
end

-- Messages that have to wait for nothing but their turn, of one stream and one behind the other: they begin to wait together.
local pending = {}
local PENDING_MAX = 500
local function let_pending_wait()
    if #pending == 0 then return end
    local messages, room = pending, pending[1].room
    pending = {}
    crowded[room] = true
    if pcall(let_many_wait, room, messages) then return end
    take_back(room)
    for _, message in ipairs(messages) do publish_whatever_is_there(message) end
end

-- Whether a message that comes first of these has to wait, whatever its gates say.
local function has_to_wait(room, message)
    if message.gates == '' then return not has_room(room, message.stream) end
    return waiting_in(room) > 0 or free_slots(room) < 1
end

-- Whether a message was put to those. One with limits is looked at by itself where it may be a copy.
local function waits_with_others(message)
    if message.readers ~= '' or (message.gates ~= '' and news[message.call] ~= message.gates) then return false end
    local before = pending[#pending]
    local room, level
    if before and before.stream == message.stream then
        room, level = before.room, before.level
    else
        let_pending_wait()
        room, level = room_of(message.stream)
        if not has_to_wait(room, message) then return false end
    end
    if gate_of_tenant(room, message.tenant) then return false end
    news[message.call] = nil
    message.room, message.level, message.flow = room, level, flow_named(level, message.tenant, message.gates)
    pending[#pending + 1] = message
    if #pending == PENDING_MAX then let_pending_wait() end
    return true
end

pcall(look_for_copies)  -- what cannot be read is mended with the message that needs it
for i = first, #ARGV, 12 do
    local fields = {'b', ARGV[i + 3], 'h', ARGV[i + 4], 'p', ARGV[i + 5], 'id', ARGV[i + 6]}
    if ARGV[i + 7] ~= '' then
        fields[9], fields[10] = 'claim', ARGV[i + 7]
    end
    local message = {
        readers = ARGV[i], lane = ARGV[i + 1], stream = ARGV[i + 2], fields = fields, call = ARGV[i + 6],
        tenant = ARGV[i + 8], run = ARGV[i + 9], gates = gates_at(i), ends_ms = tonumber(ARGV[i + 11]),
    }
    local is_asked, waits = pcall(waits_with_others, message)
    if not (is_asked and waits) then
        let_pending_wait()
        publish_whatever_is_there(message)
    end
end
let_pending_wait()
for room in pairs(crowded) do
    safely(room, look_and_admit_free, ADMITTED_MAX)
end
return (#ARGV - first + 1) / 12
