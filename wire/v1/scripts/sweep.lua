-- Returns what dead consumers hold, forgets how many calls they take, and tells which consumers have no lease. Begins with
-- words.lua.
-- A consumer marked `gone` is swept at once, one without a lease only when the observer has condemned it.
-- One observer at a time works: whoever holds the post.
--
-- KEYS  the streams of one queue
-- ARGV  group, returned, observer, lease prefix, post, the post's term in ms, condemned consumers…

local group, returned, observer, lease_prefix, post = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local holder = redis.call('GET', post)
if holder and holder ~= observer then return {} end
redis.call('SET', post, observer, 'PX', ARGV[6])

local condemned, suspects, seen = {}, {}, {}
for i = 7, #ARGV do condemned[ARGV[i]] = true end

local function name_of(info)
    for i = 1, #info, 2 do
        if info[i] == 'name' then return info[i + 1] end
    end
end

for _, stream in ipairs(KEYS) do
    local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
    for _, info in ipairs(consumers.err and {} or consumers) do
        local name = name_of(info)
        local lease = redis.call('GET', lease_prefix .. name)
        if name ~= returned and name ~= observer and lease ~= 'alive' then
            if lease == 'gone' or condemned[name] then
                forget_word(stream, name)
                release(stream, group, returned, name)
            elseif not seen[name] then
                seen[name] = true
                suspects[#suspects + 1] = name
            end
        end
    end
end
return suspects
