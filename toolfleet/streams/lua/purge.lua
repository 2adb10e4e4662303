-- Deletes up to 1000 messages that no worker holds, and tells how many.
--
-- KEYS  one stream
-- ARGV  group, returned

local stream, group, returned = KEYS[1], ARGV[1], ARGV[2]
local removed = 0

local function remove(ids)
    if #ids == 0 then return end
    redis.pcall('XACK', stream, group, unpack(ids))
    removed = removed + redis.call('XDEL', stream, unpack(ids))
end

local function ids_of(entries)
    local ids = {}
    for i, entry in ipairs(entries) do ids[i] = entry[1] end
    return ids
end

local last = '-'
local groups = redis.pcall('XINFO', 'GROUPS', stream)
if groups.err then return 0 end
for _, info in ipairs(groups) do
    for i = 1, #info, 2 do
        if info[i] == 'last-delivered-id' then last = '(' .. info[i + 1] end
    end
    remove(ids_of(redis.call('XPENDING', stream, group, '-', '+', 1000, returned)))
end
remove(ids_of(redis.call('XRANGE', stream, last, '+', 'COUNT', 1000)))
return removed
