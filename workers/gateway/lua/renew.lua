-- Renews the leases of attempts that still have their calls.
--
-- KEYS  for each attempt: the message's stream, the attempt's lease, the mark of a cancelled call
-- ARGV  group, how long a lease holds (ms), then for each attempt: it, the entry
-- Reply for each 0 the call is not the attempt's any more, 1 it is, 2 it is and nobody wants it

local group, lease_ms = ARGV[1], ARGV[2]
local found = {}
for i = 1, #KEYS / 3 do
    local stream, lease, cancelled = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
    local attempt, id = ARGV[2 * i + 1], ARGV[2 * i + 2]
    local held = redis.pcall('XPENDING', stream, group, id, id, 1, attempt)
    if held.err or not held[1] then
        found[i] = 0
    else
        redis.call('SET', lease, 'alive', 'PX', lease_ms)
        found[i] = 1 + redis.call('EXISTS', cancelled)
    end
end
return found
