-- Milliseconds by the server's clock, the only one that schedules and leases are kept by. Begins other scripts.
local function now_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end
