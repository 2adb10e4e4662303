-- Hands back a call that its tool wants tried again later, and pauses for everybody the limits that it has passed. This
-- delivery does not count. With limits it waits in its queue's room, first of its own; without, until it is due.
-- Begins with clock.lua, gates.lua, room.lua and carry.lua.
--
-- KEYS  the message's stream, the queue's scheduled messages
-- ARGV  group, consumer, id, the queue's stream, pause in ms, claim prefix, call, tenant, run, deadline in ms
-- Reply 0 it is not the consumer's any more, 1 it waits

local stream, scheduled = KEYS[1], KEYS[2]
local group, consumer, id, home, pause_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local claim_prefix, call, tenant, run, ends_ms = ARGV[6], ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10])

local held = redis.call('XPENDING', stream, group, id, id, 1, consumer)[1]
local entry = held and redis.call('XRANGE', stream, id, id)[1]
if not entry then return 0 end

local until_ms = now_ms() + pause_ms
local text = field_of(entry[2], 'gates') or ''
local kept = without_gates(carried(id, entry[2], math.max(0, held[4] - 1)))

local room, level = room_of(home)
local own, said = declared_in(text)

local function pause(gate)
    local terms = terms_of(room.namespace, gate)
    -- Not what people have said: they may take it back before that time.
    terms.own_pause_ms = math.max(terms.own_pause_ms, until_ms)
    terms.paused_ms = math.max(terms.paused_ms, until_ms)
    local lasts_ms = terms.own_pause_ms - now_ms()
    redis.call('HSET', terms.state, 'paused', string.format('%.0f', terms.own_pause_ms),
        'pause_ms', string.format('%.0f', lasts_ms))
    redis.call('PEXPIRE', terms.state, string.format('%.0f', lasts_ms + REMEMBERED_MS))
end

kept[#kept + 1] = 'held_as'
kept[#kept + 1] = '@' .. id
if redis.pcall('GET', claim_prefix .. call) == id then
    redis.call('SET', claim_prefix .. call, '@' .. id, 'XX', 'KEEPTTL')
end
redis.call('XACK', stream, group, id)
redis.call('XDEL', stream, id)
for _, gate in ipairs(own) do pause(gate) end
free(room, text, call, stream .. ' ' .. id)
if #own > 0 then
    let_wait_first(room, level, {
        call = call, tenant = tenant, run = run, gates = said, ends_ms = ends_ms,
        readers = '', lane = '', stream = home, fields = kept})
else
    -- It may have to pass a limit of its tenant again when it is due.
    kept[#kept + 1] = 'waits_as'
    kept[#kept + 1] = as_waiting(0, ends_ms, as_who(tenant, run))
    redis.call('ZADD', scheduled, string.format('%.0f', until_ms), cjson.encode({home, unpack(kept)}))
end
safely(room, admit_free, 1)
return 1
