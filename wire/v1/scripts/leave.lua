-- The end of a consumer: marks it gone, forgets how many calls it takes, and returns what it still holds. Begins with
-- words.lua.
--
-- KEYS  its lease, then its streams
-- ARGV  group, returned, consumer, how long in ms the mark stays

redis.call('SET', KEYS[1], 'gone', 'PX', ARGV[4])
for i = 2, #KEYS do
    forget_word(KEYS[i], ARGV[3])
    if not redis.pcall('XINFO', 'CONSUMERS', KEYS[i], ARGV[1]).err then
        release(KEYS[i], ARGV[1], ARGV[2], ARGV[3])
    end
end
