-- Books what a run has used so far, and holds in all its accounts what its next reply is expected to come to, or in none.
-- Begins with clock.lua and accounts.lua.
--
-- KEYS  what this orchestrator holds, who holds anything, what is booked of the run, what replies of its model have come to,
--       then its accounts
-- ARGV  orchestrator, run, prefix of leases, prefix of what is held, the runs to book, how long to keep what is booked (s),
--       usd, tokens and calls so far, bytes of the request, most input tokens of it, dollar-billionths of an input and of an
--       output token, the bound of the reply asked for (0: none), what the hold is called, whether the reply may go beyond
--       accounts that are not strict (1 or 0), the run's turn, whoever pays what as it is kept for others, then for each
--       account: period, bounds of usd, tokens and calls, whether it is strict
-- Reply {1, the bound that the reply must have, 0: none of ours, account's number, unit and bound where the reply goes beyond one,
--       and of each limit of which four fifths are used: account's number, unit, what is used}; or {0, 'spent' or 'held',
--       account's number, unit, its bound}

local reserved, reserving, booked, costs = unpack(KEYS, 1, 4)
local orchestrator, run, leases, reserved_prefix, unbooked, keep_s = unpack(ARGV, 1, 6)
local totals = {tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])}
local bytes, most_input, input_price, output_price, asked_bound = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local token, may_go_beyond, turn, bill = ARGV[15], ARGV[16] == '1', ARGV[17], ARGV[18]
local FIRST_ACCOUNT, FIRST_KEY = 19, 5

-- Before anything is known of a model: a reply of some length, and English text.
local OUTPUT_UNKNOWN, TOKENS_PER_BYTE_UNKNOWN = 500, 0.3
-- A strict account with less left than an unknown reply may come to still takes one that is bounded by so much.
local LEAST_UNKNOWN = 64
-- Nine of ten are shorter, were they spread as a bell is.
local SPREAD = 1.28
-- Every model takes a bound of so much. Longer ones are for whoever says how long replies may be, or has longer ones.
local GENEROUS = 4096
-- Where that is more than a part of what is left, others are to have something too: how much longer than most the reply may be
-- then, and how long in any case, as far as there is so much left.
local PARTS, HEADROOM, LEAST_BOUND = 4, 2, 256

local found = redis.call('HMGET', costs, 'n', 'output', 'output_squared', 'tokens_per_byte')
local mean = tonumber(found[2] or OUTPUT_UNKNOWN)
local most = mean + SPREAD * math.sqrt(math.max(0, tonumber(found[3] or '0') - mean * mean))
local input = math.min(most_input, math.ceil(bytes * tonumber(found[4] or TOKENS_PER_BYTE_UNKNOWN)))
local output = math.ceil(found[1] and most or mean)
if asked_bound > 0 then output = math.min(output, asked_bound) end
output = math.max(1, output)

local function costing(in_tokens, out_tokens)
    return {math.ceil(in_tokens * input_price + out_tokens * output_price), in_tokens + out_tokens, 0}
end

-- How long a reply may be that fits into what is left of a strict account; negative where not even its request does.
local function longest(account)
    local bound = math.huge
    local usd, tokens = account.usd, account.tokens
    if usd.bound and output_price > 0 then
        bound = math.floor((usd.bound - usd.used - usd.held - most_input * input_price) / output_price)
    elseif usd.bound then
        bound = usd.bound - usd.used - usd.held - most_input * input_price >= 0 and bound or -1
    end
    if tokens.bound then bound = math.min(bound, tokens.bound - tokens.used - tokens.held - most_input) end
    return bound
end

-- How long a reply may be that has been told no bound.
local most_output = asked_bound > 0 and asked_bound or math.max(GENEROUS, HEADROOM * output)

-- How long a reply may be under a strict account: all that is left of one that no other run waits for, or can.
local function allowed(account)
    local left = longest(account)
    if left == math.huge then return left end
    if account.period == '' and account.usd.held + account.tokens.held == 0 then return math.min(left, most_output) end
    return math.min(left, most_output, math.max(LEAST_BOUND, HEADROOM * output, math.floor(left / PARTS)))
end

-- Why an account does not take the reply: nothing, or the unit, and whether it is only held.
local function refusal(account, amounts)
    -- Of calls, those of the reply are judged once it is there: the answer to the last of them is welcome.
    for n, unit in ipairs({'usd', 'tokens'}) do
        local of = account[unit]
        if of.bound and of.used >= of.bound then return unit, 'spent' end
        if of.bound and of.used + of.held + amounts[n] > of.bound then
            -- The last reply may go beyond, of an account that is not strict.
            if of.held > 0 then return unit, 'held' end
        end
    end
end

-- The same for a strict account and a reply of this bound, of which as much must fit as is expected.
local function strict_refusal(account)
    if longest(account) >= (found[1] and output or math.min(output, LEAST_UNKNOWN)) then return nil end
    for _, unit in ipairs({'usd', 'tokens'}) do
        if account[unit].bound and account[unit].held > 0 then return unit, 'held' end
    end
    return account.usd.bound and 'usd' or 'tokens', 'spent'
end

-- What of the accounts is nearly used up.
local NEARLY = 0.8
local function low_of(accounts)
    local low = {}
    for i, account in ipairs(accounts) do
        for _, unit in ipairs(UNITS) do
            local of = account[unit]
            if of.bound and of.used >= NEARLY * of.bound then
                low[#low + 1], low[#low + 2], low[#low + 3] = i, unit, string.format('%.0f', of.used)
            end
        end
    end
    return low
end

-- Of each account a run may go beyond once; the same reply again is no second time.
local function is_first_beyond(account)
    local before = redis.call('HGET', booked, 'beyond:' .. account.key)
    return not before or before == turn
end

local function try()
    local accounts = read_accounts(KEYS, FIRST_KEY, ARGV, FIRST_ACCOUNT, keep_s)
    local bound, beyond = math.huge, nil
    for i, account in ipairs(accounts) do
        local unit, why
        if account.strict then
            unit, why = strict_refusal(account)
            bound = math.min(bound, allowed(account))
        else
            unit, why = refusal(account, costing(input, output))
        end
        if unit and why == 'spent' and not account.strict and may_go_beyond and is_first_beyond(account) then
            beyond = beyond or {account = account, i, unit, string.format('%.0f', account[unit].bound)}
        elseif unit then
            return nil, {0, why, i, unit, string.format('%.0f', account[unit].bound)}
        end
    end
    local is_strict = bound < math.huge
    local amounts = {}
    for i, account in ipairs(accounts) do
        amounts[i] = account.strict and costing(most_input, is_strict and bound or output) or costing(input, output)
    end
    -- Held also of what is spent: whoever finds the run without its orchestrator knows by it that something is to be booked.
    hold(reserved, reserving, orchestrator, run, token, accounts, amounts, keep_s)
    if beyond then redis.call('HSET', booked, 'beyond:' .. beyond.account.key, turn) end
    return {1, is_strict and string.format('%.0f', bound) or '0', beyond and {unpack(beyond)} or {}, low_of(accounts)}
end

-- An earlier try may have been heard here and its answer nowhere.
release(reserved, run, held_for(reserved, run))
redis.call('HSET', booked, 'bill', bill)
book(booked, read_accounts(KEYS, FIRST_KEY, ARGV, FIRST_ACCOUNT, keep_s), totals, keep_s)
local held, refused = try()
if not held and sweep(reserving, reserved_prefix, leases, unbooked) then held, refused = try() end
return held or refused
