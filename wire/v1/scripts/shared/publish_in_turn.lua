-- Adds messages to their streams or lets them wait in their queue's room: what publish_many.lua does when not all of them may
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
    elseif has_waiting(room) or free_slots(room) < 1
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

local let_pending_wait, waits_with_others
do
    -- Messages that have to wait for nothing but their turn, of one stream and one behind the other: they begin to wait together.
    local pending = {}
    local PENDING_MAX = 500
    function let_pending_wait()
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
        return has_waiting(room) or free_slots(room) < 1
    end

    -- Whether a message was put to those. One with limits is looked at by itself where it may be a copy.
    function waits_with_others(message)
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
end

local let_plain_ones_wait, waits_plainly
do  -- a script has no more than 200 local names at once
    -- Messages without limits that have to wait, of one stream and one behind the other, by their flows.
    local plain, parts, last, sent, PLAIN_MAX = nil, 0, nil, {}, 500
    function let_plain_ones_wait()
        local news = plain
        plain, parts, last = nil, 0, nil
        if not news then return end
        local room, level = news.room, news.level
        crowded[room] = true
        if pcall(let_plain_wait, room, level, news) then return end
        count_failure(room)
        for _, each in ipairs(news) do mend(room, level, each.tenant, '', each.flow) end
        let_plain_wait(room, level, news)
    end

    -- Begins the messages of a flow. False where they need not wait.
    local function begin_flow(i)
        local stream, tenant, run = ARGV[i + 2], ARGV[i + 8], ARGV[i + 9]
        if not plain or plain.stream ~= stream then
            let_plain_ones_wait()
            let_pending_wait()
            local room, level = room_of(stream)
            if has_room(room, stream) then return false end
            plain = {room = room, level = level, stream = stream}
        end
        if gate_of_tenant(plain.room, tenant) then return false end
        last = plain_flow(plain.room, plain.level, tenant, run)
        plain[#plain + 1] = last
        return true
    end

    -- Whether the message that begins there was put to those.
    function waits_plainly(i)
        if ARGV[i] ~= '' or ARGV[i + 10] ~= '0' then return false end
        local is_next = last and plain.stream == ARGV[i + 2] and last.run == ARGV[i + 9] and last.tenant == ARGV[i + 8]
        if not is_next and not begin_flow(i) then return false end
        if sent[ARGV[i + 6]] then
            count_copy(plain.room)
            return true
        end
        sent[ARGV[i + 6]] = true
        local its = last.parts
        local n = #its
        its[n + 1], its[n + 2], its[n + 3], its[n + 4] = ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6]
        its[n + 5], its[n + 6] = ARGV[i + 7], ARGV[i + 11]
        parts = parts + PARTS
        if parts == PLAIN_MAX * PARTS then let_plain_ones_wait() end
        return true
    end
end

pcall(look_for_copies)  -- what cannot be read is mended with the message that needs it
local function publish_from(i)
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

for i = first, #ARGV, 12 do
    local is_asked, waits = pcall(waits_plainly, i)
    if not (is_asked and waits) then
        let_plain_ones_wait()
        publish_from(i)
    end
end
let_plain_ones_wait()
let_pending_wait()
for room in pairs(crowded) do
    safely(room, look_and_admit_free, ADMITTED_MAX)
end
return (#ARGV - first + 1) / 12
