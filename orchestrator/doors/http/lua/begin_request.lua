-- Notes that the first request with an Idempotency-Key is under way, or tells what is known of it.
--
-- KEYS  its record
-- ARGV  fingerprint of the request, how long it counts as under way (ms)
-- Reply false for the first request, else {fingerprint, status, headers, body, granted}, nothing but the first while it lasts

local record = KEYS[1]
local fingerprint, under_way_ms = ARGV[1], ARGV[2]

local known = redis.call('HMGET', record, 'fingerprint', 'status', 'headers', 'body', 'granted')
if known[1] then return known end
redis.call('HSET', record, 'fingerprint', fingerprint)
redis.call('PEXPIRE', record, under_way_ms)
return false
