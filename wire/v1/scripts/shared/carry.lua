-- What an entry becomes in another stream. It remembers the id of its first entry and the deliveries that count, so that
-- a call which may have begun is never taken for a new one. Shared by forward and retire_lane; goes with gates.lua.
local function carried(id, fields, deliveries)
    local kept, first, unserved_ms = {}, id, nil
    for i = 1, #fields, 2 do
        local name, value = fields[i], fields[i + 1]
        if name == 'first' then
            first = value
        elseif name == 'earlier' then
            deliveries = deliveries + (tonumber(value) or 0)
        elseif name == 'held_as' or name == 'late' then
            -- how its claim called it while it waited, and that it was put back once: over
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

-- The same for a message that passes its limits anew.
local OF_GATES = {gates = true, waits_as = true, meets = true}
local function without_gates(fields)
    local kept = {}
    for i = 1, #fields, 2 do
        if not OF_GATES[fields[i]] then
            kept[#kept + 1] = fields[i]
            kept[#kept + 1] = fields[i + 1]
        end
    end
    return kept
end

-- A claim names the one entry that may have the call's effect, so it goes with the message. What only looks like a
-- message that was carried has another id, and so no claim.
local function move_claim(claim_prefix, fields, from, to, place)
    pcall(move_places, string.match(claim_prefix, '^(.-):[^:]*:$'), fields, place)
    for i = 1, #fields, 2 do
        if fields[i] == 'id' then
            local key = claim_prefix .. fields[i + 1]
            if redis.pcall('GET', key) == from then redis.call('SET', key, to, 'XX', 'KEEPTTL') end
        end
    end
end
