-- Adds messages to their streams or lets them wait in their queue's room: what publish_many.lua does when not all of them may
-- go straight on. ARGV and the reply are those of publish.lua. Begins behind kinds.lua and room.lua.

-- Workers that have room for more let it in themselves.
local ADMITTED_MAX = 100
local crowded = {}

-- The gates of the messages of a row, as JSON; empty where they have none.
local function gates_at(row)
    local kind = kinds[tonumber(ARGV[row + 5])]
    return kind and ARGV[kind] or ''
end

-- A message waits plainly if it is for no lane, its tenant has no limit of its own, and it comes in the order of deadlines.
local function let_wait_in_turn(room, level, message)
    crowded[room] = true
    local is_plain = message.readers == '' and not gate_of_tenant(room, message.tenant)
    local its = is_plain and plain_flow(room, level, message.tenant, message.gates, message.run)
    if its and may_be_last(its, message.ends) and redis.call('HEXISTS', room.calls, message.call) == 0 then
        its.parts = message.parts
        let_plain_wait(room, level, {its})
    elseif its and waits_already(its, message.call) then
        count_copy(room)
    else
        let_wait(room, level, message)
    end
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
    if is_copy(room.namespace, gates, message.call) then
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

-- Why messages could not be let wait: then nobody is to hear that they do.
local refusal
local let_pending_wait, waits_with_others
do  -- a script has no more than 200 local names at once
    -- Messages that have to wait, of one stream and one behind the other, by their flows and runs: they begin to wait together.
    local pending, parts, last, sent, PENDING_MAX = nil, 0, nil, {}, 500
    function let_pending_wait()
        local news = pending
        pending, parts, last = nil, 0, nil
        if not news then return end
        local room, level = news.room, news.level
        crowded[room] = true
        if pcall(let_plain_wait, room, level, news) then return end
        count_failure(room)
        for _, each in ipairs(news) do pcall(mend, room, level, each.tenant, each.gates) end
        local is_done, failure = pcall(let_plain_wait, room, level, news)
        if is_done then return end
        refusal = refusal or failure
        error(failure, 0)
    end

    -- Whether a message that comes first of these has to wait, whatever its gates say.
    local function has_to_wait(room, stream, gates)
        if gates == '' then return not has_room(room, stream) end
        return has_waiting(room) or free_slots(room) < 1
    end

    -- Begins the messages of a run in a flow. False where they need not wait.
    local function begin_run(row, i)
        local stream, tenant, gates = ARGV[row + 2], ARGV[row + 4], gates_at(row)
        if not pending or pending.stream ~= stream then
            let_pending_wait()
            local room, level = room_of(stream)
            if not has_to_wait(room, stream, gates) then return false end
            pending = {room = room, level = level, stream = stream, by_list = {}}
        end
        if gate_of_tenant(pending.room, tenant) then return false end
        local its = plain_flow(pending.room, pending.level, tenant, gates, ARGV[i + 4])
        last = pending.by_list[its.list]
        if not last then
            its.kind = ARGV[row + 5]
            last, pending.by_list[its.list], pending[#pending + 1] = its, its, its
        end
        return true
    end

    local function is_of_last(row, i)
        return last and last.run == ARGV[i + 4] and last.kind == ARGV[row + 5] and last.tenant == ARGV[row + 4]
            and pending.stream == ARGV[row + 2]
    end

    -- Whether a message with limits may wait with the others: not one that ends before those that it would stand behind, nor
    -- one that may be a copy of one that waits, and not plainly.
    local function may_wait_with_others(i)
        local call, room = ARGV[i + 2], pending.room
        if not may_be_last(last, ARGV[i + 5]) then return false end
        if room.has_others == nil then room.has_others = redis.call('EXISTS', room.calls) == 1 end
        return not (room.has_others and redis.call('HEXISTS', room.calls, call) == 1)
    end

    -- Whether the message that begins there was put to those.
    function waits_with_others(row, i)
        local call = ARGV[i + 2]
        if ARGV[row] ~= '' then return false end
        if not is_of_last(row, i) and not begin_run(row, i) then return false end
        if sent[call] then
            count_copy(pending.room)
            return true
        end
        if last.gates ~= '' and not may_wait_with_others(i) then return false end
        sent[call] = true
        local its = last.parts
        local n = #its
        its[n + 1], its[n + 2], its[n + 3], its[n + 4] = ARGV[i], ARGV[i + 1], ARGV[row + 3], call
        its[n + 5], its[n + 6] = ARGV[i + 3], ARGV[i + 5]
        parts = parts + PARTS
        if parts == PENDING_MAX * PARTS then let_pending_wait() end
        return true
    end
end

local function publish_from(row, i)
    local readers, lane, stream, properties, tenant = unpack(ARGV, row, row + 4)
    local body, headers, call, claim, run, ends = unpack(ARGV, i, i + 5)
    local fields = {'b', body, 'h', headers, 'p', properties, 'id', call}
    if claim ~= '' then
        fields[9], fields[10] = 'claim', claim
    end
    publish_whatever_is_there({
        readers = readers, lane = lane, stream = stream, fields = fields, call = call, tenant = tenant, run = run,
        gates = gates_at(row), ends = ends, ends_ms = tonumber(ends), parts = {body, headers, properties, call, claim, ends},
    })
end

for _, row in ipairs(rows) do
    for i = row + OF_ROW, end_of(row), OF_MESSAGE do
        local is_asked, waits = pcall(waits_with_others, row, i)
        if refusal then error(refusal, 0) end
        if not (is_asked and waits) then
            let_pending_wait()
            publish_from(row, i)
        end
    end
end
let_pending_wait()
for room in pairs(crowded) do
    safely(room, look_and_admit_free, ADMITTED_MAX)
end
return total
