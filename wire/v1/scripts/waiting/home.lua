-- Where a stream belongs: its namespace, its queue, and its level; nothing for what is no queue's. A lane belongs to its
-- queue. Begins other scripts.

local LANE_ENDING = '^(.+)%.lane%-' .. string.rep('[0-9a-f]', 12) .. '$'
local function home_of(stream)
    local namespace, queue, level = string.match(stream, '^(.-)' .. QUEUE .. '(.+):(%d+)$')
    if queue then return namespace, string.match(queue, LANE_ENDING) or queue, level end
end
