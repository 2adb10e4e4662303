-- Takes back what was offered and not acknowledged in time: the answer was lost, or its worker was. Uncounted, as no
-- attempt has begun. Begins with uncounted.lua.
--
-- KEYS  the streams of one queue
-- ARGV  group, returned, how the names of those begin that are offered calls, in what time to acknowledge (ms)
-- Reply how many went back

local group, returned, offered, within_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local AT_ONCE = 200
local taken = 0

local function take_back(stream, consumer)
    local held = redis.pcall('XPENDING', stream, group, 'IDLE', within_ms, '-', '+', AT_ONCE, consumer)
    for _, entry in ipairs(held.err and {} or held) do
        give_back_uncounted(stream, group, returned, entry[1], entry[4])
        taken = taken + 1
    end
end

for _, stream in ipairs(KEYS) do
    local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
    for _, info in ipairs(consumers.err and {} or consumers) do
        local named = {}
        for i = 1, #info, 2 do named[info[i]] = info[i + 1] end
        if named['pending'] > 0 and string.sub(named['name'], 1, #offered) == offered then
            take_back(stream, named['name'])
        end
    end
end
return taken
