-- How many calls the live workers of a queue take at once, as they have told. Begins other scripts, behind clock.lua.

-- As many calls as may be in a stream while no worker has told how many it takes.
local UNKNOWN_SLOTS = 4

-- What the workers have told `state`, the key of a room; 0 while none has.
local function slots_told(state)
    local slots, until_ms = unpack(redis.call('HMGET', state, 'slots', 'slots_until'))
    return slots and (tonumber(until_ms) or 0) > now_ms() and tonumber(slots) or 0
end
