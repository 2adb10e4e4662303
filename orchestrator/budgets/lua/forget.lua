-- Gives back what is held for a run that cannot be read any more, and takes it off the runs to book.
-- Begins with clock.lua and accounts.lua.
--
-- KEYS  what this orchestrator holds, the runs to book
-- ARGV  run

local reserved, unbooked = unpack(KEYS)
release(reserved, ARGV[1], held_for(reserved, ARGV[1]))
return redis.call('SREM', unbooked, ARGV[1])
