-- Why calls wait in their queue's room, and what goes before each. Forgets holders that are gone, and changes nothing else.
-- Begins behind room.lua. For many calls, as it takes longer to make the room's functions than to look at a call.
--
-- KEYS  the stream that it is for
-- ARGV  the calls
-- Reply for each call false if it does not wait there; else {calls before it of its own tenant and limits, those in the
--       stream included, how many wait in the room, whether calls of others go between (0 or 1), the gate that it waits
--       at or empty (JSON), how many may pass that at once or hold it, and how many do, and when to look again (ms from
--       now)}

local room, level = room_of(KEYS[1])

local in_stream
local function waiting_in_stream()
    if not in_stream then
        local pending = redis.pcall('XPENDING', KEYS[1], GROUP)
        in_stream = redis.call('XLEN', KEYS[1]) - (pending.err and 0 or pending[1])
    end
    return in_stream
end

-- How many calls wait, whoever's they are.
local in_room
local function waiting_in(room)
    in_room = in_room or redis.call('HLEN', room.calls) + (tonumber(redis.call('HGET', room.state, PLAIN_WAITING)) or 0)
    return in_room
end

-- How many plain calls of a flow go before the one that stands so in its run's list, and how many are in the flow: runs take
-- turns. What stands in further runs is not looked at, and counts for nothing.
local RUNS_MAX = 100
local function turns_before(flow, run, at)
    local line = line_of(room, flow)
    local own, before, in_flow = redis.call('ZRANK', line, run) or 0, at, 0
    for number, other in ipairs(redis.call('ZRANGE', line, 0, RUNS_MAX - 1)) do
        local length = plain_length(room, flow, other)
        in_flow = in_flow + length
        if other ~= run then before = before + math.min(length, number <= own and at + 1 or at) end
    end
    return before, own < RUNS_MAX and in_flow or in_flow + plain_length(room, flow, run)
end

-- In which flow a call waits, how many of that go before it, and how many are in it.
local function place_of(call)
    local flow = unpacked(redis.call('HGET', room.calls, call))
    if flow then return flow, redis.call('ZRANK', line_of(room, flow), call) or 0, redis.call('ZCARD', line_of(room, flow)) end
    local run = string.match(call, '^(.*)%.%d+%.%d+$')
    local flows, lists = plain_flows_of(room, run or '')
    for i, list in ipairs(lists) do
        local at = redis.call('LPOS', list, call)
        if at then return flows[i], turns_before(flows[i], run, math.floor(at / PARTS)) end
    end
end

local function explained(call)
    local flow, its_before, in_flow = place_of(call)
    if not flow then return false end
    local _, tenant, text = flow_parts(flow)
    local before, is_alone = its_before + waiting_in_stream(), in_flow == waiting_in(room)
    for _, gate in ipairs((gates_of(room, tenant, text))) do
        if redis.call('ZSCORE', aside_at(room, gate_name(gate)), flow) then
            local terms = terms_of(room.namespace, gate)
            local held = gate[1] == 'concurrency' and redis.call('HLEN', terms.holders) or 0
            local _, again_ms = room_at(room.namespace, gate, now_ms())
            return {before, waiting_in(room), is_alone and 0 or 1, cjson.encode(gate),
                tostring(terms.at_once or 1000 / terms.each_ms), held, again_ms - now_ms()}
        end
    end
    return {before, waiting_in(room), is_alone and 0 or 1, '', '0', 0, 0}
end

local told = {}
for i, call in ipairs(ARGV) do told[i] = room and explained(call) or false end
return told
