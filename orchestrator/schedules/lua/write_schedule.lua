-- Writes a schedule in the place of what was read of it, with when it is due. Two who have read the same do not both write.
--
-- KEYS  the schedule, all schedules by their next ticks, those of its tenant
-- ARGV  what was read ('' for a new one), what is to stand there ('' removes it), id, when it is due (ms, '' never),
--       when it was made (ms), how many a tenant may have
-- Reply 1 written, 0 something else stands there by now, -1 the tenant has too many

local schedule, due, listed = KEYS[1], KEYS[2], KEYS[3]
local before, after, id, due_ms, made_ms, most = unpack(ARGV)

if (redis.call('GET', schedule) or '') ~= before then return 0 end
if before == '' and redis.call('ZCARD', listed) >= tonumber(most) then return -1 end
if after == '' then
    redis.call('DEL', schedule)
    redis.call('ZREM', listed, id)
    redis.call('ZREM', due, id)
    return 1
end
redis.call('SET', schedule, after)
redis.call('ZADD', listed, made_ms, id)
if due_ms == '' then redis.call('ZREM', due, id) else redis.call('ZADD', due, due_ms, id) end
return 1
