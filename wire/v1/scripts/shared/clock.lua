-- Milliseconds by the server's clock, the only one that schedules and leases are kept by. A script runs at one moment: it
-- is asked once. Begins other scripts.
local at_ms
local function now_ms()
    if not at_ms then
        local time = redis.call('TIME')
        at_ms = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    return at_ms
end
