-- Lets one call at a time find the answer to a question, and has calls that ask the same wait in their queue's scheduled
-- set, where no worker has them and they hold no place of a limit. One that is to run and has no place waits for one in the
-- queue's room, first of its own. Begins with clock.lua, gates.lua, room.lua and
-- carry.lua. These calls may be repeated, so they have no claims.
--
-- KEYS  what is kept of the answer, who finds it (hash: call, stream, entry), the messages that wait for it, the message's
--       stream, the queue's scheduled messages
-- ARGV  group, consumer, the message's id, its call, the queue's stream, how long it waits at most in ms, its deadline in
--       ms, its gates, its tenant, its run, 1 to run whatever is kept and whoever else asks
-- Reply {'kept', answer}, {'finds'}, {'waits'}, or {'lost'} if the message is not the consumer's any more

local kept, finder, waiting, stream, scheduled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, consumer, id, call, home = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local pause_ms, deadline_ms, gates = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local tenant, run, is_alone = ARGV[9], ARGV[10], ARGV[11] == '1'
local FORGOTTEN_AFTER_MS = 3600000

local room, level = room_of(stream)

-- Anybody may have written here: what is of another type is of no use, and is removed.
for key, kind in pairs({[kept] = 'string', [finder] = 'hash', [waiting] = 'set', [scheduled] = 'zset'}) do
    cleared(key, kind)
end

-- What the message becomes elsewhere; nil if it is not the consumer's any more.
local function fields_elsewhere()
    local held = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)[1]
    local entry = held and redis.call('XRANGE', stream, id, id)[1]
    return entry and carried(id, entry[2], math.max(0, held[4] - 1))
end

local function let_go()
    redis.call('XACK', stream, group, id)
    redis.call('XDEL', stream, id)
    if room then free(room, gates, call, stream .. ' ' .. id) end
end

local function wait_for_answer()
    local fields = fields_elsewhere()
    if not fields then return {'lost'} end
    local message = cjson.encode({home, unpack(fields)})
    redis.call('ZADD', scheduled, math.min(now_ms() + pause_ms, deadline_ms), message)
    redis.call('SADD', waiting, message)
    redis.call('PEXPIREAT', waiting, string.format('%.0f', deadline_ms + FORGOTTEN_AFTER_MS))
    let_go()
    if room and gates ~= '' then safely(room, admit_free, 1) end
    return {'waits'}
end

-- The rate was passed before.
local function wait_for_places()
    local fields = fields_elsewhere()
    if not fields then return {'lost'} end
    local _, places = declared_in(gates, 'concurrency')
    let_go()
    let_wait_first(room, level, {
        call = call, tenant = tenant, run = run, gates = places, ends_ms = deadline_ms,
        readers = '', lane = '', stream = home, fields = without_gates(fields)})
    safely(room, admit_free, 1)
    return {'waits'}
end

-- One that waited has no places any more; to run it takes them again. False where one is not free.
local function has_places()
    local wanted = {}
    for _, gate in ipairs(room and gates_in(gates) or {}) do
        local terms = gate[1] == 'concurrency' and terms_of(room.namespace, gate)
        if terms and redis.call('HEXISTS', terms.holders, call) == 0 then
            if room_at(room.namespace, gate, now_ms(), call) < 1 then return false end
            wanted[#wanted + 1] = terms
        end
    end
    for _, terms in ipairs(wanted) do
        redis.call('HSET', terms.holders, call, stream .. ' ' .. id)
        keep_holders(terms, now_ms(), deadline_ms)
    end
    return true
end

local function is_being_found()
    local its_call, its_stream, entry = unpack(redis.call('HMGET', finder, 'call', 'stream', 'entry'))
    if not its_call or its_call == call then return false end
    -- Its message is there from when it is sent until it is settled, buried or purged, and comes to another worker when
    -- its own is lost: as long as it is there the call goes on, whoever has it.
    local found = its_stream and entry and redis.pcall('XRANGE', its_stream, entry, entry)
    return found and not found.err and #found > 0
end

local answer = not is_alone and redis.call('GET', kept)
if answer then return {'kept', answer} end
if not is_alone and is_being_found() then return wait_for_answer() end
local is_done, has = pcall(has_places)
if not is_done then
    count_failure(room)
    mend(room, level, tenant, gates)
    has = has_places()
end
if not has then return wait_for_places() end
if not is_alone then
    redis.call('HSET', finder, 'call', call, 'stream', stream, 'entry', id)
    redis.call('PEXPIREAT', finder, string.format('%.0f', deadline_ms + FORGOTTEN_AFTER_MS))
end
return {'finds'}
