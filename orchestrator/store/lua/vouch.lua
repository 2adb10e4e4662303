-- Puts a second seal into the head of a run that is there.
--
-- KEYS  its head
-- ARGV  position and seal
-- Reply 0 if there is no such run, else 1

local head = KEYS[1]
local vouched = ARGV[1]

if redis.call('EXISTS', head) == 0 then return 0 end
redis.call('HSET', head, 'vouched', vouched)
return 1
