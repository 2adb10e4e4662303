-- How calls that a script settles give up their places. Begins other scripts, behind home.lua.

-- The gates at which a single call has had a place, as most are of a fleet that is not busy: with next to no tables for the
-- server's Lua to collect.
local function free_one(namespace, stream, at)
    local call, place, freed = ARGV[at + 1], stream .. ' ' .. ARGV[at], {}
    for i = at + 4, at + 3 + ARGV[at + 3] do
        local holders = namespace .. HOLDERS .. ARGV[i]
        if redis.call('HGET', holders, call) == place and redis.call('HDEL', holders, call) == 1 then
            freed[#freed + 1] = ARGV[i]
        end
    end
    return freed
end

-- The same for many: one look and one removal for each gate.
local function free_many(namespace, stream, settled)
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

-- Frees the places of the calls that begin at these positions of ARGV: entry, call, result, number of gates, their names.
-- What another message of a call has is left to that. The gates that have places now, and whether anybody waits in the
-- queue's room, who may be brought back for them.
local function free_together(stream, settled)
    local namespace, queue = home_of(stream)
    if not queue then return {}, false end
    local freed = #settled == 1 and free_one(namespace, stream, settled[1]) or free_many(namespace, stream, settled)
    return freed, redis.call('EXISTS', namespace .. ROOM_CALLS .. queue, namespace .. ROOM_PLAIN .. queue) > 0
end
