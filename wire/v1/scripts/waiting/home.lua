-- Where a stream belongs: its namespace, its queue, and its level; nothing for what is no queue's. A lane belongs to its
-- queue. Begins other scripts.

-- The queue that a lane is of, whose name is the queue's and twelve digits of a digest; any other name as it is.
local function without_lane(name)
    local queue, digits = string.match(name, '^(.+)%.lane%-(%x+)$')
    return queue and #digits == 12 and not string.find(digits, '%u') and queue or name
end

local function home_of(stream)
    local namespace, queue, level = string.match(stream, '^(.-)' .. QUEUE .. '(.+):(%d+)$')
    if queue then return namespace, without_lane(queue), level end
end
