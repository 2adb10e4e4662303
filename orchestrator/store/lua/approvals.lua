-- Reads which runs have calls that wait for a person, the oldest first. Those where none waits any more leave the list.
--
-- KEYS  the list
-- ARGV  how many, prefix of heads
-- Reply the runs, each with since when (ms)

local listed, wanted, heads = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local LOOKED_AT = 1000

local found = {}
local all = redis.call('ZRANGE', listed, 0, LOOKED_AT - 1, 'WITHSCORES')
for i = 1, #all, 2 do
    local awaiting = redis.call('HGET', heads .. all[i], 'awaiting')
    if not awaiting or awaiting == '0' then
        redis.call('ZREM', listed, all[i])
    elseif #found < 2 * wanted then
        found[#found + 1] = all[i]
        found[#found + 1] = all[i + 1]
    end
end
return found
