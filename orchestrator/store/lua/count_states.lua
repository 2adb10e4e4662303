-- Counts runs by their states, and compares some of them with their heads. Begins with clock.lua and trim_runs.lua.
--
-- KEYS  where runs stand by state, the list of all runs, the ends of runs, their names
-- ARGV  prefix of heads, prefix of tenants' lists, the place of the tenant whose runs are counted (empty: all), how many
--       places a state has, the name behind which runs are compared, how many of them, how many where some are missing,
--       then each state and its number
-- Reply for each state how many there are, and how many of those wait for a person; the name that was compared last, empty
--       where the next look begins anew

local states, runs, ending, names = unpack(KEYS)
local heads, runs_of, tenant, tenants, last = unpack(ARGV, 1, 5)
local number_of = {}
for i = 8, #ARGV, 2 do number_of[ARGV[i]] = tonumber(ARGV[i + 1]) end

trim_runs(ending, runs, names, states, runs_of, heads, now_ms(), 500)
local stand, named = redis.call('ZCARD', states), redis.call('ZCARD', names)
local at_most = tonumber(stand == named and ARGV[6] or ARGV[7])

local function state_of(run)
    local head = redis.pcall('HMGET', heads .. run, 'state', 'awaiting')
    local number = not head.err and number_of[head[1]]
    return number and number * 2 + ((tonumber(head[2]) or 0) > 0 and 1 or 0)
end

local compared = redis.call('ZRANGEBYLEX', names, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, at_most)
last = #compared == at_most and compared[at_most] or ''
for _, each in ipairs(compared) do
    local cut = string.find(each, '\0', 1, true)
    local run = cut and string.sub(each, 1, cut - 1) or each
    local place = cut and tonumber(string.sub(redis.sha1hex(string.sub(each, cut + 1)), 1, 12), 16) or 0
    local state = state_of(run)
    if state then
        redis.call('ZADD', states, string.format('%.0f', state * tonumber(tenants) + place), run)
    else
        redis.call('ZREM', states, run)
    end
end
-- What nobody of ours has put there has no name, and is found by chance.
for _, run in ipairs(stand > named and redis.call('ZRANDMEMBER', states, 100) or {}) do
    if not state_of(run) then redis.call('ZREM', states, run) end
end

local told = {}
for i = 8, #ARGV, 2 do
    for awaiting = 0, 1 do
        local first = (number_of[ARGV[i]] * 2 + awaiting) * tonumber(tenants)
        local from, to = first, first + tonumber(tenants) - 1
        if tenant ~= '' then from, to = first + tonumber(tenant), first + tonumber(tenant) end
        told[#told + 1] = redis.call('ZCOUNT', states, string.format('%.0f', from), string.format('%.0f', to))
    end
end
return {told, last}
