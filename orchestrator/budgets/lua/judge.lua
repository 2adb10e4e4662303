-- Decides whether the calls that a reply asks for may be sent, and holds them in all accounts until they are booked.
-- Begins with clock.lua and accounts.lua.
--
-- KEYS  what this orchestrator holds, who holds anything, then the run's accounts
-- ARGV  orchestrator, run, how long to keep an account (s), usd and tokens of the reply, how many calls, what the hold
--       is called, then the accounts as in reserve.lua
-- Reply {1}, or {0, account's number, unit, its bound, how many of the calls would fit}

local reserved, reserving = unpack(KEYS, 1, 2)
local orchestrator, run, keep_s = unpack(ARGV, 1, 3)
local reply = {tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])}
local token = ARGV[7]
local FIRST_ACCOUNT, FIRST_KEY = 8, 3

local held = held_for(reserved, run)
if not held or held.token ~= token then
    release(reserved, run, held)
    held = {token = token, of = {}}
end
-- An earlier try may have been heard here and its answer nowhere.
local of = {}
for _, each in ipairs(held.of) do
    if each[4] > 0 then give_back({of = {each}}) else of[#of + 1] = each end
end
held.of = of
local function note()
    redis.call('HSET', reserved, run, cjson.encode(held))
    redis.call('SADD', reserving, orchestrator)
    redis.call('EXPIRE', reserved, keep_s)
    redis.call('EXPIRE', reserving, keep_s)
end
local accounts = read_accounts(KEYS, FIRST_KEY, ARGV, FIRST_ACCOUNT, keep_s, held)
for i, account in ipairs(accounts) do
    for n, unit in ipairs(UNITS) do
        local its = account[unit]
        -- Calls that others are about to make count; of their replies nobody knows yet what they come to.
        local others = unit == 'calls' and its.held or 0
        if its.bound and its.used + others + reply[n] > its.bound then
            note()
            local left = unit == 'calls' and math.max(0, its.bound - its.used - others) or 0
            return {0, i, unit, string.format('%.0f', its.bound), string.format('%.0f', left)}
        end
    end
end
for _, account in ipairs(accounts) do
    of[#of + 1] = {account.key, 0, 0, reply[3]}
    redis.call('HINCRBY', account.key, 'held_calls', ARGV[6])
    redis.call('EXPIRE', account.key, account.kept_s)
end
note()
return {1}
