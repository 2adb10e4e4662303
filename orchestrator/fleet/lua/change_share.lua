-- Puts one word about a version in the place of another, if that is the one that stands there: of two who change it at once
-- one hears so, and looks again.
--
-- KEYS  what is said of versions (hash of sealed JSON)
-- ARGV  tool, what must stand there or an empty text, what is to stand there or an empty text
-- Reply 1, or 0 where something else stood there

local said, tool, before, after = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if (redis.call('HGET', said, tool) or '') ~= before then return 0 end
if after == '' then redis.call('HDEL', said, tool) else redis.call('HSET', said, tool, after) end
return 1
