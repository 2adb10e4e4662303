-- Adds messages to their streams, or to their queue's waiting room: all or none, as nothing is added when the first one
-- is refused (out of memory). A lane that nobody reads any more is passed by, for the queue itself.
--
-- ARGV  how many kinds of limits the messages have; for each kind: its gates as JSON, how many they are, and for each gate
--       what it says: kind, tool, value, amount, burst; then
--       for messages in a row that have this in common: readers of their lane and the lane's stream (or two empty strings),
--       their stream, properties, tenant, kind of limits (by number, 0 for none), how many they are, and of each: its body,
--       headers, the call's id, the seconds its claim lasts (empty for a call that need not be claimed), its run, and when
--       nobody wants it any more (ms, 0: never)
-- Reply how many messages
--
-- Here is what a message needs that comes alone, for a queue with hardly anything in it: no lane, no limit, nobody before it. A
-- server that has just been woken for it is through with this when it would begin in publish_many.lua, which does the same for
-- any messages: the function `publish_many`. One that is alone and has limits goes by publish_lone.lua, the function
-- `publish_lone`, if nobody waits and its gates are open.

local ALONE, OF_GATE, FEW = 13, 5, 4
if ARGV[1] == '1' then
    local first = 4 + OF_GATE * ARGV[3]
    local is_alone = #ARGV == first + ALONE - 1 and ARGV[first] == '' and ARGV[first + 5] == '1'
    if is_alone then
        local is_done, is_sent = pcall(publish_lone)
        if is_done and is_sent then return 1 end
    end
    return publish_many()
end
if #ARGV ~= 1 + ALONE or ARGV[1] ~= '0' or ARGV[2] ~= '' or ARGV[7] ~= '0' then return publish_many() end

local stream, properties, tenant, _, _, body, headers, call, claim = unpack(ARGV, 4, 12)
local namespace, queue = string.match(stream, '^(.-)' .. QUEUE .. '(.+):%d$')
local waits = redis.call('EXISTS', namespace .. ROOM_CALLS .. queue, namespace .. ROOM_PLAIN .. queue) > 0
local length = redis.pcall('XLEN', stream)
local is_free = not waits and type(length) == 'number' and length < FEW
if not (is_free and (tenant == '' or redis.pcall('HEXISTS', namespace .. TENANTS, tenant) == 0)) then return publish_many() end

if claim == '' then
    redis.call('XADD', stream, '*', 'b', body, 'h', headers, 'p', properties, 'id', call)
else
    redis.call('XADD', stream, '*', 'b', body, 'h', headers, 'p', properties, 'id', call, 'claim', claim)
end
return 1
