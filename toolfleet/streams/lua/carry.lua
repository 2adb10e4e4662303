-- What an entry becomes in another stream. It remembers the id of its first entry, which stands in its claim, and the
-- deliveries that count, so that a call which may have begun is never taken for a new one. Shared by forward and
-- retire_lane.
local function carried(id, fields, deliveries)
    local kept, first, unserved_ms = {}, id, nil
    for i = 1, #fields, 2 do
        local name, value = fields[i], fields[i + 1]
        if name == 'first' then
            first = value
        elseif name == 'earlier' then
            deliveries = deliveries + (tonumber(value) or 0)
        elseif name == 'unserved' then
            unserved_ms = tonumber(value)
        else
            kept[#kept + 1] = name
            kept[#kept + 1] = value
        end
    end
    for _, word in ipairs({'first', first, 'earlier', string.format('%d', deliveries)}) do
        kept[#kept + 1] = word
    end
    return kept, unserved_ms
end

local function time_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end
