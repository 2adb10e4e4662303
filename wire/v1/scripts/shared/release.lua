-- Returns all that a consumer holds and forgets the consumer. Delivery counts stay, but for what was only offered to a
-- worker over HTTPS, which had not begun it. Shared by sweep and leave. Begins with uncounted.lua and the constant OFFERED.
local function release(stream, group, returned, consumer)
    local is_begun = string.sub(consumer, 1, #OFFERED) ~= OFFERED
    while true do
        local held = redis.call('XPENDING', stream, group, '-', '+', 500, consumer)
        if #held == 0 then break end
        local ids = {}
        for i, entry in ipairs(held) do
            ids[i] = entry[1]
            if not is_begun then
                give_back_uncounted(stream, group, returned, entry[1], entry[4])
            end
        end
        if is_begun then redis.call('XCLAIM', stream, group, returned, 0, unpack(ids), 'JUSTID') end
    end
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
end
