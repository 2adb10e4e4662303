-- Reads a page of which runs have calls that wait for a person, the oldest first. Those where none waits any more leave the list.
--
-- KEYS  the list
-- ARGV  how many, prefix of heads, where the page before ended: since when (ms) and a run (empty: at the oldest)
-- Reply the runs, each with since when (ms); then since when and the run where it ended, or empty when there is nothing more

local listed, wanted, heads, score, last = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local LOOKED_AT = 1000

local at = 0
if last ~= '' then
    -- One that has had news stands further back by now: those between have not been seen.
    local stands = redis.call('ZSCORE', listed, last) == score
    at = stands and redis.call('ZRANK', listed, last) + 1 or redis.call('ZCOUNT', listed, '-inf', '(' .. score)
end
local all = redis.call('ZRANGE', listed, at, at + LOOKED_AT - 1, 'WITHSCORES')
local found, settled = {}, {}
for i = 1, #all, 2 do
    if #found == 2 * wanted then break end
    last, score, at = all[i], all[i + 1], at + 1
    local awaiting = redis.call('HGET', heads .. last, 'awaiting')
    if not awaiting or awaiting == '0' then
        settled[#settled + 1] = last
    else
        found[#found + 1] = last
        found[#found + 1] = score
    end
end
local is_end = at >= redis.call('ZCARD', listed)
if #settled > 0 then redis.call('ZREM', listed, unpack(settled)) end
if is_end then return {found, '', ''} end
return {found, score, last}
