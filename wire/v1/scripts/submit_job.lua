-- Puts a job in the place of a delivered call, whose message is acknowledged: from now on the job ends the call.
-- Begins with tell.lua and clock.lua.
--
-- KEYS  the call's result, the job, the schedule of its tool, the call's cancel mark, the reply stream, the mark of the
--       call's job that has ended
-- ARGV  JSON, the sealed record of the job, the sealed result that says so. The JSON has
--         stream, consumer, entry   the delivery; another broker's has no stream
--         gates                     the limits that it has passed
--         call, tool, reply_to
--         name                      which job of the call it is
--         is_scheduled              whether anybody asks about it, or can tell it to stop
--         first_wait_ms             until it is asked about
--         deadline_ms, ends_ms      of the call, and of all keys of the job
-- Reply 0 if the call is another worker's by now, 1, or 2 if it had a job or a result

local result, job, schedule, mark, replies, ended = unpack(KEYS)
local asked, record, told = cjson.decode(ARGV[1]), ARGV[2], ARGV[3]

if asked.stream ~= '' then
    -- As when a result is settled: an entry that is another worker's by now means that a new attempt has begun.
    local pending = redis.pcall('XPENDING', asked.stream, GROUP, asked.entry, asked.entry, 1)
    local owner = pending[1] and pending[1][2]
    if owner and owner ~= asked.consumer and owner ~= RETURNED then return 0 end
end
local outcome = 2
-- This script is sent again when its reply was lost, and the job may have been asked about since (HSETNX), or have ended
-- and its result been fetched (the mark).
local has_ended = redis.call('EXISTS', result) == 1 or redis.pcall('GET', ended) == asked.name
if redis.call('TYPE', job).ok ~= 'hash' then redis.call('DEL', job) end
if not has_ended and redis.call('HSETNX', job, 'record', record) == 1 then
    outcome = 1
    redis.call('HSET', job, 'tool', asked.tool)
    -- Its job has the places of the call from now on.
    if asked.gates ~= '' then
        redis.call('HSET', job, 'gates', asked.gates, 'place', asked.stream .. ' ' .. asked.entry)
    end
    redis.call('PEXPIREAT', job, asked.ends_ms)
    if asked.is_scheduled then
        local now = now_ms()
        local due = math.min(now + asked.first_wait_ms, asked.deadline_ms)
        if redis.call('EXISTS', mark) == 1 then due = now end
        redis.call('ZADD', schedule, due, asked.call)
        if redis.call('PEXPIREAT', schedule, asked.ends_ms, 'NX') == 0 then
            redis.call('PEXPIREAT', schedule, asked.ends_ms, 'GT')
        end
    end
    tell(replies, asked.call, 's', told)
    redis.call('EXPIRE', replies, REPLIES_TTL_S)
end
if asked.stream ~= '' then
    redis.call('XACK', asked.stream, GROUP, asked.entry)
    redis.call('XDEL', asked.stream, asked.entry)
end
return outcome
