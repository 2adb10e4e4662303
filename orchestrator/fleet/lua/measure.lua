-- Measures streams of queues: how much waits and runs there, and since when the oldest waits. Reads only.
--
-- KEYS  streams
-- ARGV  the consumer group, the pseudo consumer that holds what was handed back
-- Reply for each stream: how many wait, how many are with workers, when the oldest that waits came (ms; 0: none waits),
--       and each consumer that holds some, with how many

local group, returned = ARGV[1], ARGV[2]

local function ms_of(id)
    return tonumber(string.match(id, '^%d+'))
end

-- What is in no group yet was delivered to nobody.
local function last_delivered(stream)
    for _, each in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
        local facts = {}
        for i = 1, #each, 2 do facts[each[i]] = each[i + 1] end
        if facts['name'] == group then return facts['last-delivered-id'] end
    end
    return nil
end

local function measured(stream)
    local length = redis.call('EXISTS', stream) == 1 and redis.call('XLEN', stream) or 0
    if length == 0 then return {0, 0, 0, {}} end
    local last = last_delivered(stream)
    local held, back, oldest, holders = 0, 0, nil, {}
    if last then
        local pending = redis.call('XPENDING', stream, group)
        held = pending[1]
        for _, each in ipairs(pending[4] or {}) do
            if each[1] == returned then
                back = tonumber(each[2])
            else
                holders[#holders + 1] = {each[1], tonumber(each[2])}
            end
        end
    end
    local fresh = redis.call('XRANGE', stream, last and '(' .. last or '-', '+', 'COUNT', 1)[1]
    if fresh then oldest = ms_of(fresh[1]) end
    if back > 0 then
        local first = redis.call('XPENDING', stream, group, '-', '+', 1, returned)[1]
        if first then oldest = math.min(oldest or math.huge, ms_of(first[1])) end
    end
    return {length - held + back, held - back, oldest or 0, holders}
end

local found = {}
for i, stream in ipairs(KEYS) do found[i] = measured(stream) end
return found
