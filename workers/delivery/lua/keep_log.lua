-- Adds what tools have logged to the logs of their calls, and keeps of each the newest lines. What an earlier attempt
-- says late stands before all that later ones have said, and goes first.
--
-- ARGV  most lines, most bytes, then for each call: key, seconds that it is kept, lines that the worker has dropped
--       already, number of parts, and for each of these: the rank of its attempt, the part
--
-- A part is "<when it was made> <number of its lines> <what is sealed>". The member with an empty name has as its score
-- how many lines are kept no more; no attempt's rank is as low.

local most_lines, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])

local function drop_oldest(key)
    local parts, lines, bytes, dropped = redis.call('ZRANGE', key, 0, -1), 0, 0, 0
    for at = #parts, 1, -1 do
        local part = parts[at]
        local its_lines = tonumber(string.match(part, '^%d+ (%d%d?%d?%d?%d?) ') or 0)
        if part == '' then
            -- The count itself.
        elseif lines >= most_lines or bytes >= most_bytes then
            redis.call('ZREM', key, part)
            dropped = dropped + its_lines
        else
            lines, bytes = lines + its_lines, bytes + #part
        end
    end
    return dropped
end

local i = 3
while i <= #ARGV do
    local key, kept_s, dropped = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
    local at = i + 4
    for _ = 1, ARGV[i + 3] do
        local added = redis.pcall('ZADD', key, ARGV[at], ARGV[at + 1])
        if type(added) == 'table' then
            if not string.find(added.err, 'WRONGTYPE', 1, true) then return added end
            redis.call('DEL', key)
            redis.call('ZADD', key, ARGV[at], ARGV[at + 1])
        end
        at = at + 2
    end
    dropped = dropped + drop_oldest(key)
    if dropped > 0 then redis.call('ZINCRBY', key, dropped, '') end
    redis.call('EXPIRE', key, kept_s)
    i = at
end
