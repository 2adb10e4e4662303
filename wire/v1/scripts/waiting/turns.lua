-- Whose turn it is in a room: levels in their order, the tenants of a level by their shares, and the flows of a tenant one
-- after the other. Begins other scripts, behind room.lua.

local levels_at
do  -- a script has no more than 200 local names at once
    -- One of so many moves looks at lower levels first, so that batch work goes on while people keep the queue busy.
    local LOWER_FIRST_EVERY, MIDDLE_FIRST, LOWEST_FIRST = 20, {'3', '0', '6'}, {'6', '3', '0'}

    -- The order of levels for one of many moves.
    function levels_at(count)
        local at = count % LOWER_FIRST_EVERY
        if at == LOWER_FIRST_EVERY - 1 then return LOWEST_FIRST end
        if at == LOWER_FIRST_EVERY / 2 - 1 then return MIDDLE_FIRST end
        return LEVELS
    end
end

local tenants = {}
local function terms_of_tenant(room, tenant)
    local terms = tenants[tenant]
    if not terms then
        local text = tenant ~= '' and redis.pcall('HGET', room.namespace .. TENANTS, tenant)
        local said = type(text) == 'string' and decoded(text) or {}
        terms = {
            weight = positive(said.weight) or 1,
            guaranteed = positive(said.guaranteed) or 0,
            ceiling = positive(said.ceiling),
        }
        tenants[tenant] = terms
    end
    return terms
end

-- A tenant with a ceiling or a guarantee has its running calls counted, by a gate that each of them passes.
local function gate_of_tenant(room, tenant)
    local terms = terms_of_tenant(room, tenant)
    if not terms.ceiling and terms.guaranteed == 0 then return nil end
    return {'concurrency', '@' .. room.queue, 'tenant=' .. tenant, terms.ceiling or 1e15, 0}
end

-- All gates of a call of this flow, and their text.
local function gates_of(room, tenant, text)
    local gates, own = gates_in(text), gate_of_tenant(room, tenant)
    if not own then return gates, text end
    local all = {unpack(gates)}
    all[#all + 1] = own
    return all, with_gate_of_tenant(text, own)
end

-- The virtual time at which a tenant's next call starts.
local function fair_start(room, level, tenant)
    local finish = tonumber(redis.call('ZSCORE', shares_of(room, level), tenant)) or 0
    return math.max(times_of(room)[level], finish)
end

-- The same, or before all others while it has less than it is guaranteed.
local OWED = -1
local function start_of(room, level, tenant)
    local guaranteed = terms_of_tenant(room, tenant).guaranteed
    if guaranteed > 0 then
        local terms = terms_of(room.namespace, gate_of_tenant(room, tenant))
        if held_at(room.namespace, terms, guaranteed, now_ms()) < guaranteed then return OWED end
    end
    return fair_start(room, level, tenant)
end

local function activate(room, flow, score)
    local level, tenant = flow_parts(flow)
    redis.call('ZADD', flows_of(room, level, tenant), score, flow)
    redis.call('ZADD', turns_of(room, level), 'NX', start_of(room, level, tenant), tenant)
end

local function deactivate(room, level, tenant, flow)
    redis.call('ZREM', flows_of(room, level, tenant), flow)
    if redis.call('EXISTS', flows_of(room, level, tenant)) == 0 then
        redis.call('ZREM', turns_of(room, level), tenant)
    end
end

-- The level and the tenant whose turn it is, and its start.
local function next_turn(room)
    for _, level in ipairs(levels_at(times_of(room).moves)) do
        local first = redis.call('ZRANGE', turns_of(room, level), 0, 0, 'WITHSCORES')
        if first[1] then return level, first[1], tonumber(first[2]) end
    end
end

-- What becomes of a tenant's turn once so many of its calls have gone.
local function charge_tenant(room, level, tenant, start, calls)
    local times, weight = times_of(room), terms_of_tenant(room, tenant).weight
    if start == OWED then start = fair_start(room, level, tenant) end
    for _ = 2, calls do start = start + 1 / weight end
    redis.call('ZADD', shares_of(room, level), start + 1 / weight, tenant)
    times[level] = math.max(times[level], start)
    times.moves = times.moves + calls
end

-- The same, and what becomes of the flow that had it.
local function charge(room, level, tenant, flow, start, calls)
    charge_tenant(room, level, tenant, start, calls or 1)
    local times = times_of(room)
    if redis.call('EXISTS', line_of(room, flow)) == 1 then
        redis.call('ZADD', flows_of(room, level, tenant), times.moves, flow)
    else
        redis.call('ZREM', flows_of(room, level, tenant), flow)
    end
end

local function take_next_turn(room, level, tenant)
    if redis.call('EXISTS', flows_of(room, level, tenant)) == 1 then
        redis.call('ZADD', turns_of(room, level), start_of(room, level, tenant), tenant)
    else
        redis.call('ZREM', turns_of(room, level), tenant)
    end
end
