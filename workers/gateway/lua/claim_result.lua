-- Notes which result an attempt has sent, unless one was noted before.
--
-- KEYS  the message's stream, where it is noted
-- ARGV  group, entry, the attempt, who has what was taken from it and given to nobody, digest, how long it is kept (s)
-- Reply whether the call is the attempt's or nobody's (1, 0), what was noted before

local stream, place = KEYS[1], KEYS[2]
local group, id, attempt, returned, digest, kept_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local held = redis.pcall('XPENDING', stream, group, id, id, 1)
local owner = not held.err and held[1] and held[1][2]
local is_held = owner == attempt or owner == returned
local before = redis.call('GET', place)
if is_held and not before then redis.call('SET', place, digest, 'EX', kept_s) end
return {is_held and 1 or 0, before}
