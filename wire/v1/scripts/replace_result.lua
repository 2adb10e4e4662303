-- Puts the true result of a call in the place of one that nobody of the fleet has sealed, and tells of it. Begins with
-- tell.lua.
--
-- ARGV  prefix of results, call, the false result as it was read, the sealed result (empty: none yet), the reply stream
-- Reply 1 if this result counts, 2 if another one was stored meanwhile

local results, call, forged, sealed, replies = unpack(ARGV)

local found = redis.pcall('GET', results .. call)  -- an error, of a key of another type: nobody's result
if type(found) == 'string' and found ~= forged then return 2 end
redis.call('DEL', results .. call)
if sealed == '' then return 1 end
return settle(results, call, sealed, replies)
