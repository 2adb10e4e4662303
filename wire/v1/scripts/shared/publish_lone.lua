-- Adds a message with limits that is sent alone, where nobody waits, workers can take it, its gates are open, and nothing
-- is said of them but what its tool declares: what publish.lua does first, as most calls of a fleet that is not busy are
-- such. ARGV is that of publish.lua. It asks what terms.lua asks and keeps next to nothing of it in tables: what a script
-- leaves behind for the server's Lua to collect costs more than its commands. Begins behind slots.lua, kinds.lua and
-- lasting.lua.
--
-- Reply whether it has; else nothing is sent, and the other ways find out what becomes of the message.

local now, stream, call, tenant = now_ms(), ARGV[first + 2], ARGV[first + 6], ARGV[first + 8]
local namespace, queue = string.match(stream, '^(.-)' .. QUEUE .. '(.+):%d+$')

-- Its rate: where that is kept, what it was at, and what it is at with one more start. Its concurrency: who has places, and
-- how many they are.
local rate, known_ms, arrival_ms, kept_ms, holders, held

local function is_paused(paused) return paused and (tonumber(paused) or 0) > now end

local function has_start(name, each_ms, burst)
    rate = namespace .. GATE .. name
    local found, ahead_ms = redis.call('HMGET', rate, 'arrival', 'paused'), (burst - 1) * each_ms
    known_ms = tonumber(found[1])
    if known_ms and not (known_ms >= 0 and known_ms <= now + ahead_ms) then return false end
    arrival_ms = math.max(now, known_ms or now + ahead_ms) + each_ms
    kept_ms = burst > 1 and REMEMBERED_MS or ARRIVAL_KEPT_MS
    return not is_paused(found[2])
end

local function has_place(name, at_once, may_be_paused)
    if may_be_paused and is_paused(redis.call('HGET', namespace .. GATE .. name, 'paused')) then return false end
    holders = namespace .. HOLDERS .. name
    held = redis.call('HLEN', holders)
    return held < at_once and held < MANY_HOLDERS and (held == 0 or redis.call('HEXISTS', holders, call) == 0)
end

local function may_pass()
    local kind, room, plain = kinds[1] + 2, namespace .. ROOM_CALLS .. queue, namespace .. ROOM_PLAIN .. queue
    -- Mostly there is nothing of all this, which one command says: who waits, what people have said of limits, and of a
    -- gate with places whatever is known but who has them. Of a rate there is always something.
    local limits, tenants, gate = namespace .. LIMITS, namespace .. TENANTS, room
    if ARGV[kind] == 'concurrency' then
        gate = namespace .. GATE .. 'concurrency|' .. ARGV[kind + 1] .. '|' .. ARGV[kind + 2]
    end
    local is_usual = redis.call('EXISTS', room, plain, limits, tenants, gate) == 0
    if not is_usual and redis.call('EXISTS', room, plain) > 0 then return false end
    if not is_usual and tenant ~= '' and redis.call('HEXISTS', tenants, tenant) == 1 then return false end
    local home = namespace .. QUEUE .. queue
    local taken = redis.call('XLEN', home .. ':0') + redis.call('XLEN', home .. ':3') + redis.call('XLEN', home .. ':6')
    if taken >= slots_told(namespace .. ROOM .. queue) then return false end
    local unsaid
    for at = kind, first - 1, 5 do
        local tool, key = ARGV[at + 1], ARGV[at + 1] .. '|' .. ARGV[at + 2]
        if not is_usual and key ~= unsaid then
            local said = redis.call('HMGET', limits, tool, key)
            if said[1] or said[2] then return false end
            unsaid = key
        end
        local name, amount = ARGV[at] .. '|' .. key, tonumber(ARGV[at + 3])
        if ARGV[at] == 'rate' then
            if rate or not has_start(name, 1000 / amount, math.max(1, tonumber(ARGV[at + 4]))) then return false end
        elseif holders or not has_place(name, amount, not is_usual or at > kind) then
            return false
        end
    end
    return holders or redis.call('EXISTS', namespace .. GATE .. 'passed|' .. call) == 0
end

local is_readable, may_go = pcall(may_pass)
if not (is_readable and may_go) then return false end

-- The fields that lines.lua adds, in their order.
local claim, text, ends = ARGV[first + 7], ARGV[kinds[1]], ARGV[first + 11]
local waits, id = as_waiting(now, ends, as_who(tenant, ARGV[first + 9])), nil
if claim == '' then
    id = redis.call('XADD', stream, '*', 'b', ARGV[first + 3], 'h', ARGV[first + 4], 'p', ARGV[first + 5], 'id', call,
        'gates', text, 'waits_as', waits)
else
    id = redis.call('XADD', stream, '*', 'b', ARGV[first + 3], 'h', ARGV[first + 4], 'p', ARGV[first + 5], 'id', call,
        'claim', claim, 'gates', text, 'waits_as', waits)
end

if rate then
    redis.call('HSET', rate, 'arrival', string.format('%.6f', arrival_ms))
    -- As rarely as take_starts puts it off.
    if not known_ms or math.floor(known_ms / (kept_ms / 10)) ~= math.floor(arrival_ms / (kept_ms / 10)) then
        redis.call('PEXPIRE', rate, string.format('%.0f', arrival_ms - now + kept_ms))
    end
end
if not holders then
    redis.call('SET', namespace .. GATE .. 'passed|' .. call, stream .. ' ' .. id, 'PX', PASSED_MS)
    return true
end
redis.call('HSET', holders, call, stream .. ' ' .. id)
local lasts = string.format('%.0f', math.max(tonumber(ends) - now, 0) + REMEMBERED_MS)
if held == 0 then
    redis.call('PEXPIRE', holders, lasts)
elseif redis.call('PEXPIRE', holders, lasts, 'GT') == 0 then
    redis.call('PEXPIRE', holders, lasts, 'NX')
end
return true
