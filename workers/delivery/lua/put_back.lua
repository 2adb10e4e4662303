-- Takes a message from the consumer whose tool asked for time, and lets it wait: at its limits, which are shut for so long
-- for everybody, or by itself where it has none. This delivery does not count, and had no effect: its claim goes.
-- Begins with clock.lua, gates.lua, room.lua and carry.lua.
--
-- KEYS  the message's stream, the queue's scheduled messages, the call's claim
-- ARGV  group, consumer, the message's id, its call, the queue's stream, for how long in ms, its deadline in ms, its tool,
--       its tenant, its run, its gates
-- Reply 1, or 0 if the message is not the consumer's any more

local stream, scheduled, claim = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, id, call, home = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local pause_ms, deadline_ms, tool, tenant, run = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9], ARGV[10]

local held = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)[1]
local entry = held and redis.call('XRANGE', stream, id, id)[1]
if not entry then return 0 end
local room, level = room_of(home)
local until_ms = now_ms() + pause_ms

-- The limits of the tool itself: the tenant's share is put to them anew.
local own = {}
for _, gate in ipairs(gates_in(ARGV[11])) do
    if gate[2] == tool then own[#own + 1] = gate end
end

-- What was asked too often has a rate; a tool that declares none is asked by too many at once.
local function shut(kind)
    local any = false
    for _, gate in ipairs(own) do
        if gate[1] == kind then
            local state = terms_of(room.namespace, gate).state
            local paused_ms = tonumber(redis.call('HGET', state, 'paused') or 0)
            redis.call('HSET', state, 'paused', string.format('%.0f', math.max(paused_ms, until_ms)))
            redis.call('PEXPIRE', state, string.format('%.0f', pause_ms + REMEMBERED_MS))
            any = true
        end
    end
    return any
end
if not shut('rate') then shut('concurrency') end

local fields = {}
local carried_fields = carried(id, entry[2], math.max(0, held[4] - 1))
for i = 1, #carried_fields, 2 do
    if carried_fields[i] ~= 'gates' then
        fields[#fields + 1] = carried_fields[i]
        fields[#fields + 1] = carried_fields[i + 1]
    end
end
redis.call('XACK', stream, group, id)
redis.call('XDEL', stream, id)
if redis.pcall('GET', claim) == id then redis.call('DEL', claim) end
free(room, ARGV[11], call)
if #own > 0 then
    let_wait(room, level, {
        readers = '', lane = '', stream = home, fields = fields, call = call, tenant = tenant, run = run,
        gates = cjson.encode(own), ends_ms = deadline_ms,
    })
else
    redis.call('ZADD', scheduled, until_ms, cjson.encode({home, unpack(fields)}))
end
admit(room, 1)
return 1
