-- Gives one entry back so that its delivery to whom it is taken from does not count: `delivered` says how often it was
-- delivered until now. Shared by sweep, leave and take_back.
local function give_back_uncounted(stream, group, returned, id, delivered)
    redis.call('XCLAIM', stream, group, returned, 0, id, 'RETRYCOUNT', math.max(0, delivered - 1), 'JUSTID')
end
