-- How many calls that have ended give up their places at once: one look and one removal for each gate. Begins other
-- scripts, behind home.lua and texts.lua.

-- Removes those of `calls` from a gate's holders that have their place for these messages. Whether any had.
local function give_up_together(holders, calls, places)
    local mine = {}
    for i, place in ipairs(redis.call('HMGET', holders, unpack(calls))) do
        if place == places[i] then mine[#mine + 1] = calls[i] end
    end
    return #mine > 0 and redis.call('HDEL', holders, unpack(mine)) > 0
end

-- Frees the places of settled calls of a stream: their texts of gates, their names and the places of their messages.
-- What has places now, and whether anybody waits in the queue's room, who may be brought back for them.
local function free_together(stream, texts, calls, places)
    local namespace, queue = home_of(stream)
    local by_gate, names, freed = {}, {}, {}
    for i, text in ipairs(texts) do
        for _, gate in ipairs(queue and gates_in(text) or {}) do
            if gate[1] == 'concurrency' then
                local name = gate_name(gate)
                if not by_gate[name] then
                    by_gate[name] = {gate = gate, calls = {}, places = {}}
                    names[#names + 1] = name
                end
                local those = by_gate[name]
                those.calls[#those.calls + 1], those.places[#those.places + 1] = calls[i], places[i]
            end
        end
    end
    for _, name in ipairs(names) do
        local those = by_gate[name]
        if give_up_together(namespace .. HOLDERS .. name, those.calls, those.places) then
            freed[#freed + 1] = those.gate
        end
    end
    return freed, queue and redis.call('HLEN', namespace .. ROOM_CALLS .. queue) > 0
end
