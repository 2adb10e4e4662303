-- The accounts of budgets. Begins other scripts; needs clock.lua before it.
--
-- An account is a hash: what is used and what is held of `usd` (in billionths), `tokens` and `calls`. What an orchestrator
-- holds stands in one hash for it, by run: {token, of}, which hold it is and a list of {key, usd, tokens, calls}.

local UNITS = {'usd', 'tokens', 'calls'}
local DAY_S = 86400

-- Which month of which year a day is in, the days counted from 1970 (H. Hinnant, chrono-compatible date algorithms).
local function month_of(days)
    local z = days + 719468
    local era = math.floor(z / 146097)
    local doe = z - era * 146097
    local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
    local mp = math.floor((5 * doy + 2) / 153)
    local month = mp < 10 and mp + 3 or mp - 9
    return yoe + era * 400 + (month <= 2 and 1 or 0), month
end

-- The key of an account as it stands in this period, and how long it is kept (s).
local function dated(key, period, keep_s)
    local days = math.floor(now_ms() / 1000 / DAY_S)
    if period == 'day' then return key .. ':day:' .. days, 3 * DAY_S end
    if period == 'month' then
        local year, month = month_of(days)
        return string.format('%s:month:%d-%02d', key, year, month), 70 * DAY_S
    end
    return key, period == 'total' and 3650 * DAY_S or keep_s
end

-- The key of an account in the period in which something is held of it: a reply counts there, also after midnight.
local function held_at(held, key, period)
    if not held or (period ~= 'day' and period ~= 'month') then return nil end
    local beginning = key .. ':' .. period .. ':'
    for _, each in ipairs(held.of) do
        if string.sub(each[1], 1, #beginning) == beginning then return each[1] end
    end
end

-- Accounts as they are given: key, period, then the bounds of each unit (-1: none), whether it is strict (1 or 0). They are
-- those of the period of `held`, where that is given.
local function read_accounts(keys, first_key, args, first, keep_s, held)
    local accounts = {}
    for i = first_key, #keys do
        local at = first + (i - first_key) * 5
        local key, kept_s = dated(keys[i], args[at], keep_s)
        key = held_at(held, keys[i], args[at]) or key
        local found = redis.call('HMGET', key, 'used_usd', 'used_tokens', 'used_calls', 'held_usd', 'held_tokens', 'held_calls')
        local account = {key = key, kept_s = kept_s, period = args[at], strict = args[at + 4] == '1'}
        for n, unit in ipairs(UNITS) do
            local bound = tonumber(args[at + n])
            account[unit] = {bound = bound >= 0 and bound or nil, used = tonumber(found[n] or '0'), held = tonumber(found[n + 3] or '0')}
        end
        accounts[#accounts + 1] = account
    end
    return accounts
end

local function give_back(held)
    for _, each in ipairs(held.of) do
        -- What has ended meanwhile is not begun again with less than nothing.
        if redis.call('EXISTS', each[1]) == 1 then
            for n, unit in ipairs(UNITS) do
                if each[n + 1] ~= 0 then redis.call('HINCRBY', each[1], 'held_' .. unit, string.format('%.0f', -each[n + 1])) end
            end
        end
    end
end

-- What a run holds at an orchestrator; nil for nothing.
local function held_for(reserved, run)
    local held = redis.call('HGET', reserved, run)
    return held and cjson.decode(held) or nil
end

-- Gives back what a run holds at an orchestrator, if anything.
local function release(reserved, run, held)
    if not held then return end
    give_back(held)
    redis.call('HDEL', reserved, run)
end

-- Gives back what those hold whose lease has lapsed, and notes their runs: what these have used may not be booked. Whether
-- there was any.
local function sweep(reserving, reserved_prefix, leases, unbooked)
    local found = false
    for _, id in ipairs(redis.call('SMEMBERS', reserving)) do
        if redis.call('EXISTS', leases .. id) == 0 then
            local all = redis.call('HGETALL', reserved_prefix .. id)
            for i = 1, #all, 2 do
                give_back(cjson.decode(all[i + 1]))
                redis.call('SADD', unbooked, all[i])
                found = true
            end
            redis.call('EXPIRE', unbooked, 30 * DAY_S)
            redis.call('DEL', reserved_prefix .. id)
            redis.call('SREM', reserving, id)
        end
    end
    return found
end

-- Adds what was used to one account.
local function add(account, amounts)
    for n, unit in ipairs(UNITS) do
        if amounts[n] > 0 then
            redis.call('HINCRBY', account.key, 'used_' .. unit, string.format('%.0f', amounts[n]))
            redis.call('EXPIRE', account.key, account.kept_s)
            account[unit].used = account[unit].used + amounts[n]
        end
    end
end

-- Adds to the accounts what a run has used since it was booked last; `totals` are all that it has used so far, so that a
-- repeat adds nothing. What a run had used before it first came here is nobody's.
local function book(booked, accounts, totals, keep_s)
    local is_known = redis.call('HEXISTS', booked, 'usd') == 1
    local found = redis.call('HMGET', booked, 'usd', 'tokens', 'calls')
    local more = {}
    for n, unit in ipairs(UNITS) do
        local before = is_known and tonumber(found[n] or '0') or totals[n]
        more[n] = totals[n] - before
        if more[n] > 0 or not is_known then redis.call('HSET', booked, unit, string.format('%.0f', totals[n])) end
    end
    for _, account in ipairs(accounts) do add(account, more) end
    redis.call('EXPIRE', booked, keep_s)
end

local function hold(reserved, reserving, orchestrator, run, token, accounts, amounts, keep_s)
    local held = {}
    for i, account in ipairs(accounts) do
        held[i] = {account.key}
        for n, unit in ipairs(UNITS) do
            held[i][n + 1] = amounts[i][n]
            if amounts[i][n] ~= 0 then redis.call('HINCRBY', account.key, 'held_' .. unit, string.format('%.0f', amounts[i][n])) end
        end
        redis.call('EXPIRE', account.key, account.kept_s)
    end
    redis.call('HSET', reserved, run, cjson.encode({token = token, of = held}))
    redis.call('SADD', reserving, orchestrator)
    -- Whoever tends the budgets removes them long before, if anybody does.
    redis.call('EXPIRE', reserved, keep_s)
    redis.call('EXPIRE', reserving, keep_s)
end
