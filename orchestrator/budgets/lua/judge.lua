-- Decides whether the calls that a reply asks for may be sent, and holds them in all accounts until they are booked.
-- Begins with clock.lua and accounts.lua.
--
-- KEYS  what this orchestrator holds, who holds anything, then the run's accounts
-- ARGV  orchestrator, run, how long to keep an account (s), usd and tokens of the reply, how many calls, then the accounts as
--       in reserve.lua
-- Reply {1}, or {0, account's number, unit, its bound}

local reserved, reserving = unpack(KEYS, 1, 2)
local orchestrator, run, keep_s = unpack(ARGV, 1, 3)
local reply = {tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])}
local FIRST_ACCOUNT, FIRST_KEY = 7, 3

local accounts = read_accounts(KEYS, FIRST_KEY, ARGV, FIRST_ACCOUNT, keep_s)
for i, account in ipairs(accounts) do
    for n, unit in ipairs(UNITS) do
        local of = account[unit]
        -- Calls that others are about to make count; of their replies nobody knows yet what they come to.
        local others = unit == 'calls' and of.held or 0
        if of.bound and of.used + others + reply[n] > of.bound then return {0, i, unit, string.format('%.0f', of.bound)} end
    end
end
local held = cjson.decode(redis.call('HGET', reserved, run) or '[]')
for _, account in ipairs(accounts) do
    held[#held + 1] = {account.key, 0, 0, reply[3]}
    redis.call('HINCRBY', account.key, 'held_calls', ARGV[6])
    redis.call('EXPIRE', account.key, account.kept_s)
end
redis.call('HSET', reserved, run, cjson.encode(held))
redis.call('SADD', reserving, orchestrator)
redis.call('EXPIRE', reserved, keep_s)
redis.call('EXPIRE', reserving, keep_s)
return {1}
