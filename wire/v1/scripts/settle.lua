-- Settles calls: stores each result, tells of it, and acknowledges and deletes its message, unless the call is another
-- worker's by now; then frees the places of these, and lets in from the waiting room who waited for them.
--
-- ARGV  prefix of jobs, then for each origin: stream, consumer, prefix of results, reply stream, number of its
--       settlements, and for each of those: entry, call, sealed result, at how many gates it has a place (empty without
--       limits), and their names
-- Reply for each settlement 0 if it came too late, 1 if it counted, 2 if the call had a result or goes on as a job
--
-- Here is what a call needs that is settled alone: still its worker's, returned, and waited for by who sent it. A server that
-- has just been woken for it takes a fifth less time so than in settle_many.lua, which does the same for any calls: the function
-- `settle_many`. Begins behind free_all.lua.

local stream, consumer, results, replies, settlements, entry, call, sealed, places = unpack(ARGV, 2, 10)
if settlements ~= '1' or #ARGV ~= 10 + (tonumber(places) or 0) or stream == '' then return settle_many() end

-- Whether it says behind its MAC, in the order in which ours write it, that the tool returned.
local MAC_CHARS = 64
local has_returned = string.find(sealed, '{"type":"returned"', MAC_CHARS + 1, true) == MAC_CHARS + 1
local namespace = string.sub(results, 1, -1 - #RESULTS)
local lease = namespace .. ORCHESTRATOR .. string.sub(replies, #namespace + #REPLIES + 1)
local pending = has_returned and redis.pcall('XPENDING', stream, GROUP, entry, entry, 1) or {}
-- Before anything is stored: whatever is not as usual goes the other way from its beginning.
local is_usual = pending[1] and pending[1][2] == consumer and redis.call('EXISTS', lease) == 1
if not (is_usual and redis.call('SET', results .. call, sealed, 'NX', 'PX', RESULT_TTL_MS)) then return settle_many() end

redis.pcall('XADD', replies, 'MAXLEN', '~', REPLIES_MAX, '*', 'c', call, 'r', sealed)
redis.pcall('EXPIRE', replies, REPLIES_TTL_S)
redis.pcall('HINCRBY', namespace .. SETTLED, 'returned', 1)
redis.call('XACK', stream, GROUP, entry)
redis.call('XDEL', stream, entry)
if places == '' then return {1} end

-- Its places, where nobody waits for one and it is not for the turns of a tenant: else free_all.lua finds who comes back.
local ENTRY_AT, NAMES_AT = 7, 11
local OF_TENANT = 'concurrency|@'
local queue = string.match(stream, QUEUE .. '(.+):%d$', #namespace + 1)
local is_waited_for = not queue or string.find(queue, '.lane-', 1, true)
for i = NAMES_AT, #ARGV do
    is_waited_for = is_waited_for or string.sub(ARGV[i], 1, #OF_TENANT) == OF_TENANT
        or redis.call('EXISTS', namespace .. ROOM_ASIDE .. queue .. ':' .. ARGV[i]) == 1
end
if is_waited_for then
    free_all(stream, {ENTRY_AT})
    return {1}
end
for i = NAMES_AT, #ARGV do
    local holders = namespace .. HOLDERS .. ARGV[i]
    if redis.pcall('HGET', holders, call) == stream .. ' ' .. entry then redis.call('HDEL', holders, call) end
end
return {1}
