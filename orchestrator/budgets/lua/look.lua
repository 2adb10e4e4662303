-- Tells how an account stands in this period. Begins with clock.lua and accounts.lua.
--
-- KEYS  the account
-- ARGV  its period
-- Reply used usd, tokens and calls, held usd, tokens and calls; false where there is none

return redis.call('HMGET', (dated(KEYS[1], ARGV[1], '0')), 'used_usd', 'used_tokens', 'used_calls', 'held_usd', 'held_tokens', 'held_calls')
