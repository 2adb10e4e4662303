-- Reads a page of a list of runs, the newest first, with what is known of each without reading it. One command, whatever is
-- stored. Changes nothing but that runs which are gone leave the list.
--
-- KEYS  the list
-- ARGV  where the page before ended, as a score and a run (empty: at the newest), how many runs, at how many to look at
--       most, prefix of heads, then the states that are wanted (none: all)
-- Reply {for each run: its score, its id, its head's fields and values}, then the score and the run where it ended, or empty
--       when there is nothing more

local listed = KEYS[1]
local score, last, wanted, at_most, heads = unpack(ARGV, 1, 5)
wanted, at_most = tonumber(wanted), tonumber(at_most)
local is_any, states = #ARGV == 5, {}
for i = 6, #ARGV do states[ARGV[i]] = true end

local at = 0
if last ~= '' then
    local rank = redis.call('ZREVRANK', listed, last)
    -- One that is gone was before all that began no later.
    at = rank and rank + 1 or redis.call('ZCOUNT', listed, '(' .. score, '+inf')
end
local until_at = math.min(at + at_most, redis.call('ZCARD', listed))

local rows, gone = {}, {}
while #rows < wanted and at < until_at do
    local count = math.min(until_at - at, is_any and wanted - #rows or 500)
    local found = redis.call('ZREVRANGE', listed, at, at + count - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
        last, score, at = found[i], found[i + 1], at + 1
        local head, state = redis.call('HGETALL', heads .. last), nil
        for j = 1, #head, 2 do
            if head[j] == 'state' then state = head[j + 1] end
        end
        if #head == 0 then
            gone[#gone + 1] = last
        elseif is_any or states[state] then
            rows[#rows + 1] = {score, last, head}
        end
        if #rows == wanted then break end
    end
end
local is_end = at >= redis.call('ZCARD', listed)
if #gone > 0 then redis.call('ZREM', listed, unpack(gone)) end
if is_end then return {rows, '', ''} end
return {rows, score, last}
