-- How calls that a script settles give up their places. Begins other scripts, behind home.lua.

-- The gates at which calls have had places: one look and one removal for each gate.
local function free_places(namespace, stream, settled)
    local calls, places, freed = {}, {}, {}
    for _, at in ipairs(settled) do
        for i = at + 4, at + 3 + ARGV[at + 3] do
            local name = ARGV[i]
            if not calls[name] then
                calls[name], places[name] = {}, {}
                freed[#freed + 1] = name
            end
            calls[name][#calls[name] + 1] = ARGV[at + 1]
            places[name][#places[name] + 1] = stream .. ' ' .. ARGV[at]
        end
    end
    for number = #freed, 1, -1 do
        local name = freed[number]
        local holders, mine = namespace .. HOLDERS .. name, {}
        for i, place in ipairs(redis.call('HMGET', holders, unpack(calls[name]))) do
            if place == places[name][i] then mine[#mine + 1] = calls[name][i] end
        end
        if #mine == 0 or redis.call('HDEL', holders, unpack(mine)) == 0 then table.remove(freed, number) end
    end
    return freed
end

-- Whether anybody waits in the queue's room for one of these gates: aside at it, or for the turn that it decides.
local OF_TENANT = 'concurrency|@'
local function are_waited_for(namespace, queue, freed)
    local asides = {}
    for i, name in ipairs(freed) do
        if string.sub(name, 1, #OF_TENANT) == OF_TENANT then return true end
        asides[i] = namespace .. ROOM_ASIDE .. queue .. ':' .. name
    end
    return #freed > 0 and redis.call('EXISTS', unpack(asides)) > 0
end

-- Frees the places of the calls that begin at these positions of ARGV: entry, call, result, number of gates, their names.
-- What another message of a call has is left to that. The gates that have places now, and whether anybody waits for them.
local function free_together(stream, settled)
    local namespace, queue = home_of(stream)
    if not queue then return {}, false end
    local freed = free_places(namespace, stream, settled)
    return freed, are_waited_for(namespace, queue, freed)
end
