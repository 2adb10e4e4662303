-- Takes a call off the list of those that ask a person, unless it has asked again since it was looked at.
--
-- KEYS  the list
-- ARGV  the call, since when it was listed (ms)
-- Reply 1 if it has left

if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[1], ARGV[1])
