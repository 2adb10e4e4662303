-- Counts the newest runs by what their heads say of them. Reads only; what is no head counts for nothing.
--
-- KEYS  the list of all runs
-- ARGV  prefix of heads, how many of the newest
-- Reply each state with how many have it, and how many of them wait for a person

local states, awaiting = {}, 0
for _, run in ipairs(redis.call('ZREVRANGE', KEYS[1], 0, ARGV[2] - 1)) do
    local head = redis.pcall('HMGET', ARGV[1] .. run, 'state', 'awaiting')
    local state = not head.err and head[1]
    if state then
        states[state] = (states[state] or 0) + 1
        if (tonumber(head[2]) or 0) > 0 then awaiting = awaiting + 1 end
    end
end
local told = {}
for state, count in pairs(states) do
    told[#told + 1] = state
    told[#told + 1] = count
end
return {told, awaiting}
