-- Cuts entries off a run's history that are no part of it, and keeps them elsewhere for people.
-- Each is named with the seal it was read with: what somebody else has written meanwhile is never touched.
--
-- KEYS  the run's stream, the stream of what was cut off
-- ARGV  how long that is kept (ms), about how many of the newest entries it keeps, then id and seal of each entry
-- Reply how many were cut off

local stream, aside = KEYS[1], KEYS[2]
local ttl_ms, at_most = ARGV[1], ARGV[2]

local function field(fields, name)
    local found = ''
    for i = 1, #fields, 2 do
        if fields[i] == name then found = fields[i + 1] end
    end
    return found
end

local cut = 0
for i = 3, #ARGV, 2 do
    local id, seal = ARGV[i], ARGV[i + 1]
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if entry and field(entry[2], 's') == seal then
        redis.call('XADD', aside, 'MAXLEN', '~', at_most, '*', 'id', id, 'e', field(entry[2], 'e'), 's', seal)
        redis.call('XDEL', stream, id)
        cut = cut + 1
    end
end
if cut > 0 then redis.call('PEXPIRE', aside, ttl_ms) end
return cut
