-- Adds messages to their streams, or to their queue's waiting room, whatever they are: what publish.lua does when it is not one
-- alone that needs no more than that has. ARGV and the reply are those of publish.lua.
--
-- Here is what nearly every message needs. Where one has a lane, or somebody before it, all of them go by
-- publish_in_turn.lua, which is the function `publish_in_turn`; where one has a limit, by publish_open.lua if they may, which
-- is the function `publish_open`. Begins behind these two, and behind slots.lua and kinds.lua.

-- Whether a tenant's calls pass a limit of its own.
local function has_terms(namespace, tenant)
    return tenant ~= '' and redis.call('HEXISTS', namespace .. TENANTS, tenant) == 1
end

-- Whether a stream takes so many more, and nobody waits before them.
local function takes(namespace, queue, stream, messages)
    if redis.call('EXISTS', namespace .. ROOM_CALLS .. queue, namespace .. ROOM_PLAIN .. queue) > 0 then return false end
    local length = redis.call('XLEN', stream) + messages
    return length <= UNKNOWN_SLOTS or length <= slots_told(namespace .. ROOM .. queue)
end

-- The same where some of them have limits: these go no further than there are slots, whatever their level.
local function takes_bound(namespace, queue, messages)
    if redis.call('EXISTS', namespace .. ROOM_CALLS .. queue, namespace .. ROOM_PLAIN .. queue) > 0 then return false end
    local free = slots_told(namespace .. ROOM .. queue)
    for _, level in ipairs({'0', '3', '6'}) do
        local stream = namespace .. QUEUE .. queue .. ':' .. level
        free = free - redis.call('XLEN', stream) - (messages[stream] or 0)
    end
    return free >= 0
end

-- Whether nobody waits before any of them, and whether some have limits.
local function may_all_go()
    local messages, tenants, are_bound = {}, {}, #kinds > 0
    for _, row in ipairs(rows) do
        if ARGV[row] ~= '' then return false end
        local stream = ARGV[row + 2]
        messages[stream] = (messages[stream] or 0) + ARGV[row + 6]
        tenants[ARGV[row + 4]] = true
    end
    for stream, count in pairs(messages) do
        local namespace, queue = string.match(stream, '^(.-)' .. QUEUE .. '(.+):%d+$')
        if are_bound and not takes_bound(namespace, queue, messages) then return false end
        if not are_bound and not takes(namespace, queue, stream, count) then return false end
        for tenant in pairs(tenants) do
            if has_terms(namespace, tenant) then return false end
        end
    end
    return true
end

-- Where the room cannot be read, the other way mends it.
local is_readable, may_go = pcall(may_all_go)
if not (is_readable and may_go) then return publish_in_turn() end
if #kinds > 0 then return publish_open() and total or publish_in_turn() end
for _, row in ipairs(rows) do
    local stream, properties = ARGV[row + 2], ARGV[row + 3]
    for i = row + OF_ROW, end_of(row), OF_MESSAGE do
        local claim = ARGV[i + 3]
        if claim ~= '' then
            redis.call('XADD', stream, '*', 'b', ARGV[i], 'h', ARGV[i + 1], 'p', properties, 'id', ARGV[i + 2], 'claim', claim)
        else
            redis.call('XADD', stream, '*', 'b', ARGV[i], 'h', ARGV[i + 1], 'p', properties, 'id', ARGV[i + 2])
        end
    end
end
return total
