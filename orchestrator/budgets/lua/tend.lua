-- Gives back what lost orchestrators hold, and tells which budgets there are and which runs are to be booked.
-- Begins with clock.lua and accounts.lua.
--
-- KEYS  the budgets, who holds anything, the runs to book
-- ARGV  prefix of what is held, prefix of leases, how many runs at most
-- Reply the budgets as fields and values, runs to book

local budgets, reserving, unbooked = unpack(KEYS)
local reserved_prefix, leases, at_most = unpack(ARGV)

sweep(reserving, reserved_prefix, leases, unbooked)
return {redis.call('HGETALL', budgets), redis.call('SRANDMEMBER', unbooked, at_most)}
