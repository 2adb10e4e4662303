-- Books what a run has used, gives back what is held for it, and remembers what the reply has come to.
-- Begins with clock.lua and accounts.lua.
--
-- KEYS  what this orchestrator holds, what is booked of the run, what replies of its model have come to, the runs to book,
--       then its accounts
-- ARGV  run, how long to keep what is booked (s), usd, tokens and calls so far, bytes of the request, input and output tokens
--       of the reply (output -1: nothing is learnt of it), how long to remember what replies come to (s), whether to take it off
--       the runs to book (1 or 0), what the hold is called, usd and tokens of a reply that is heard and in no history,
--       whether the reply was cut off by its bound, whether its provider has not said what it came to (1 or 0 each), then the
--       accounts as in reserve.lua

local reserved, booked, costs, unbooked = unpack(KEYS, 1, 4)
local run, keep_s = unpack(ARGV, 1, 2)
local totals = {tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])}
local bytes, input, output, remember_s, is_owed = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], ARGV[10]
local token, heard = ARGV[11], {tonumber(ARGV[12]), tonumber(ARGV[13]), 0}
local is_cut, is_unreported = ARGV[14] == '1', ARGV[15] == '1'
local FIRST_ACCOUNT, FIRST_KEY = 16, 5

local WEIGHT = 0.1

local function learn()
    local found = redis.call('HMGET', costs, 'n', 'output', 'output_squared', 'tokens_per_byte')
    -- One that was cut off would have come to more: it says something only where that is more than was known.
    if is_cut and output < tonumber(found[2] or '0') then return end
    local n = tonumber(found[1] or '0') + 1
    -- The mean of the first ten; from then on the older ones fade.
    local weight = math.max(WEIGHT, 1 / n)
    local function moved(before, now) return string.format('%.17g', (1 - weight) * tonumber(before or '0') + weight * now) end
    redis.call('HSET', costs, 'n', n, 'output', moved(found[2], output), 'output_squared', moved(found[3], output * output),
        'tokens_per_byte', moved(found[4], bytes > 0 and input / bytes or 0))
    redis.call('EXPIRE', costs, remember_s)
end

-- What no history will ever tell of is booked once, by the name of its hold: what was heard, or as much as was held.
local function book_heard(accounts, held)
    if not (is_unreported and held) and heard[1] + heard[2] == 0 then return end
    if redis.call('HSETNX', booked, 'heard:' .. token, '1') == 0 then return end
    for i, account in ipairs(accounts) do
        local was_held = is_unreported and held and held.of[i]
        add(account, was_held and {was_held[2], was_held[3], 0} or heard)
    end
end

-- What a lost orchestrator held was given back; what is held for the run now is whoever's that goes on with it.
-- So is what an orchestrator holds for it by another name: it has gone on meanwhile.
local held = is_owed == '0' and held_for(reserved, run) or nil
if held and held.token ~= token then held = nil end
release(reserved, run, held)
local accounts = read_accounts(KEYS, FIRST_KEY, ARGV, FIRST_ACCOUNT, keep_s, held)
book(booked, accounts, totals, keep_s)
book_heard(accounts, held)
if held and output >= 0 then learn() end
if is_owed == '1' then redis.call('SREM', unbooked, run) end
