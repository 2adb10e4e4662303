-- Adds a message with limits that is sent alone, where nobody waits, workers can take it, its gates are open, and nothing
-- is said of them but what its tool declares: what publish.lua does first, as most calls of a fleet that is not busy are
-- such. ARGV is that of publish.lua. It asks what terms.lua asks and keeps next to nothing of it in tables: what a script
-- leaves behind for the server's Lua to collect, functions among it, costs more than its commands. Hence it is written in
-- one piece. Begins behind slots.lua and lasting.lua.
--
-- Reply whether it has; else nothing is sent, and the other ways find out what becomes of the message. They do, too, where it
-- fails, which it does before it writes anything.

local KINDS, OF_GATE = 4, 5
local first = KINDS + OF_GATE * ARGV[3]
local stream, properties, tenant, _, _, body, headers, call, claim, run, ends = unpack(ARGV, first + 2, first + 12)
local now = now_ms()
local namespace, queue = string.match(stream, '^(.-)' .. QUEUE .. '(.+):%d$')

-- Mostly there is nothing of all this, which one command says: who waits, what people have said of limits, and of a gate
-- with places whatever is known but who has them. Of a rate there is always something.
local room, plain = namespace .. ROOM_CALLS .. queue, namespace .. ROOM_PLAIN .. queue
local limits, tenants, gate = namespace .. LIMITS, namespace .. TENANTS, room
if ARGV[KINDS] == 'concurrency' then
    gate = namespace .. GATE .. 'concurrency|' .. ARGV[KINDS + 1] .. '|' .. ARGV[KINDS + 2]
end
local is_usual = redis.call('EXISTS', room, plain, limits, tenants, gate) == 0
if not is_usual then
    if redis.call('EXISTS', room, plain) > 0 then return false end
    if tenant ~= '' and redis.call('HEXISTS', tenants, tenant) == 1 then return false end
end
local home = namespace .. QUEUE .. queue
local taken = redis.call('XLEN', home .. ':0') + redis.call('XLEN', home .. ':3') + redis.call('XLEN', home .. ':6')
if taken >= slots_told(namespace .. ROOM .. queue) then return false end

-- Its rate: where that is kept, what it was at, and what it is at with one more start. Its concurrency: who has places, and
-- how many they are.
local rate, known_ms, arrival_ms, kept_ms, holders, held, unsaid
for at = KINDS, first - 1, OF_GATE do
    local tool, key = ARGV[at + 1], ARGV[at + 1] .. '|' .. ARGV[at + 2]
    if not is_usual and key ~= unsaid then
        local said = redis.call('HMGET', limits, tool, key)
        if said[1] or said[2] then return false end
        unsaid = key
    end
    local name, amount, paused = ARGV[at] .. '|' .. key, tonumber(ARGV[at + 3]), nil
    if ARGV[at] == 'rate' then
        if rate then return false end
        rate = namespace .. GATE .. name
        local each_ms, burst, found = 1000 / amount, math.max(1, tonumber(ARGV[at + 4])), redis.call('HMGET', rate, 'arrival', 'paused')
        local ahead_ms = (burst - 1) * each_ms
        known_ms, paused = tonumber(found[1]), found[2]
        if known_ms and not (known_ms >= 0 and known_ms <= now + ahead_ms) then return false end
        arrival_ms = math.max(now, known_ms or now + ahead_ms) + each_ms
        kept_ms = burst > 1 and REMEMBERED_MS or ARRIVAL_KEPT_MS
    else
        if holders then return false end
        if not is_usual or at > KINDS then paused = redis.call('HGET', namespace .. GATE .. name, 'paused') end
        holders = namespace .. HOLDERS .. name
        held = redis.call('HLEN', holders)
        if held >= amount or held >= MANY_HOLDERS then return false end
        if held > 0 and redis.call('HEXISTS', holders, call) == 1 then return false end
    end
    if paused and (tonumber(paused) or 0) > now then return false end
end
if not holders and redis.call('EXISTS', namespace .. GATE .. 'passed|' .. call) == 1 then return false end

-- Behind its rate it is sent: what can refuse is memory, which it does at once. The fields that lines.lua adds, in their order.
if rate then
    redis.call('HSET', rate, 'arrival', string.format('%.6f', arrival_ms))
    -- As rarely as take_starts puts it off.
    if not known_ms or math.floor(known_ms / (kept_ms / 10)) ~= math.floor(arrival_ms / (kept_ms / 10)) then
        redis.call('PEXPIRE', rate, string.format('%.0f', arrival_ms - now + kept_ms))
    end
end
local text, id = ARGV[2], nil
local waits = as_waiting(now, ends, as_who(tenant, run))
if claim == '' then
    id = redis.call('XADD', stream, '*', 'b', body, 'h', headers, 'p', properties, 'id', call,
        'gates', text, 'waits_as', waits)
else
    id = redis.call('XADD', stream, '*', 'b', body, 'h', headers, 'p', properties, 'id', call,
        'claim', claim, 'gates', text, 'waits_as', waits)
end

local place = stream .. ' ' .. id
if not holders then
    redis.pcall('SET', namespace .. GATE .. 'passed|' .. call, place, 'PX', PASSED_MS)
    return true
end
redis.pcall('HSET', holders, call, place)
local lasts = string.format('%.0f', math.max(tonumber(ends) - now, 0) + REMEMBERED_MS)
if held == 0 then
    redis.pcall('PEXPIRE', holders, lasts)
elseif redis.pcall('PEXPIRE', holders, lasts, 'GT') == 0 then
    redis.pcall('PEXPIRE', holders, lasts, 'NX')
end
return true
