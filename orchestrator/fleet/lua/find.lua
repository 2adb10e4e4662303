-- Finds the message of one call among those that wait in a stream, or among those that its consumers hold.
-- Looks at one page of them and changes nothing.
--
-- KEYS  the stream
-- ARGV  group, what the headers of the call's message contain, 'waiting' or 'held', after which entry ('': the first),
--       how many to look at
-- Reply {the entry's id ('': it is not among these), how many come before it, the last entry that was looked at}, and of
--       those that are held {call, entry, …} of all that were looked at: whoever asks for one of them asks for others

local stream, group, mark, which = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local after, count = ARGV[4], tonumber(ARGV[5])

local function is_it(entry)
    local fields = entry and entry[2] or {}
    for i = 1, #fields, 2 do
        if fields[i] == 'h' then return string.find(fields[i + 1], mark, 1, true) ~= nil end
    end
    return false
end

local function call_of(entry)
    local fields = entry and entry[2] or {}
    for i = 1, #fields, 2 do
        if fields[i] == 'id' then return fields[i + 1] end
    end
end

local function last_delivered()
    local groups = redis.pcall('XINFO', 'GROUPS', stream)
    if groups.err then return '0-0' end
    for _, fields in ipairs(groups) do
        local named = {}
        for i = 1, #fields, 2 do named[fields[i]] = fields[i + 1] end
        if named['name'] == group then return named['last-delivered-id'] end
    end
    return '0-0'
end

if which == 'waiting' then
    if after == '' then after = last_delivered() end
    local entries = redis.call('XRANGE', stream, '(' .. after, '+', 'COUNT', count)
    for i, entry in ipairs(entries) do
        if is_it(entry) then return {entry[1], i - 1, entry[1]} end
    end
    return {'', #entries, #entries > 0 and entries[#entries][1] or after}
end
local held = redis.pcall('XPENDING', stream, group, after == '' and '-' or '(' .. after, '+', count)
if held.err then return {'', 0, after} end
local found, before, seen = '', #held, {}
for i, pending in ipairs(held) do
    local entry = redis.call('XRANGE', stream, pending[1], pending[1])[1]
    local call = call_of(entry)
    if call then
        seen[#seen + 1] = call
        seen[#seen + 1] = pending[1]
    end
    if found == '' and is_it(entry) then found, before = pending[1], i - 1 end
end
return {found, before, #held > 0 and held[#held][1] or after, seen}
