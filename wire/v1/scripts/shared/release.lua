-- Returns all that a consumer holds and forgets the consumer. Delivery counts stay. Shared by sweep and leave.
local function release(stream, group, returned, consumer)
    while true do
        local held = redis.call('XPENDING', stream, group, '-', '+', 500, consumer)
        if #held == 0 then break end
        local ids = {}
        for i, entry in ipairs(held) do ids[i] = entry[1] end
        redis.call('XCLAIM', stream, group, returned, 0, unpack(ids), 'JUSTID')
    end
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
end
