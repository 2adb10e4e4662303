-- Lets a call wait for a person's answer where no worker has it: in its queue's scheduled set, until it is answered or the
-- question expires. This delivery does not count, and the call gives up its places: it meets its limits anew when it comes
-- back. Begins with room.lua and carry.lua.
--
-- KEYS  the message's stream, the queue's scheduled messages, what the call asks, the mark that it is cancelled
-- ARGV  group, consumer, id, the queue's stream, the queue, how long it waits at most (ms), claim prefix, call, tenant, run,
--       deadline (ms), the field of the answer
-- Reply 0 it is not the consumer's any more, 1 it waits, or comes back at once where it is answered or cancelled already

local stream, scheduled, questions, cancelled = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, id, home, queue, wait_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local claim_prefix, call, tenant, run, ends_ms, answer = unpack(ARGV, 7, 12)

local held = redis.call('XPENDING', stream, group, id, id, 1, consumer)[1]
local entry = held and redis.call('XRANGE', stream, id, id)[1]
if not entry then return 0 end

local text = field_of(entry[2], 'gates') or ''
local _, declared = declared_in(text)
local kept = without_gates(carried(id, entry[2], math.max(0, held[4] - 1)))
for _, word in ipairs({'held_as', '@' .. id, 'waits_as', as_waiting(0, ends_ms, as_who(tenant, run))}) do
    kept[#kept + 1] = word
end
if declared ~= '' then
    kept[#kept + 1] = 'meets'
    kept[#kept + 1] = declared
end
if redis.pcall('GET', claim_prefix .. call) == id then
    redis.call('SET', claim_prefix .. call, '@' .. id, 'XX', 'KEEPTTL')
end
redis.call('XACK', stream, group, id)
redis.call('XDEL', stream, id)

local message, due_ms = cjson.encode({home, unpack(kept)}), now_ms() + wait_ms
if redis.call('HEXISTS', questions, answer) == 1 or redis.call('EXISTS', cancelled) == 1 then due_ms = now_ms() end
redis.call('ZADD', scheduled, string.format('%.0f', due_ms), message)
redis.call('HSET', questions, 'parked', message, 'queue', queue)
redis.call('PEXPIREAT', questions, string.format('%.0f', ends_ms + 600000))
local room = room_of(home)
free(room, text, call, stream .. ' ' .. id)
safely(room, admit_free, 1)
return 1
