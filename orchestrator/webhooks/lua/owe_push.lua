-- Owes what a task has to tell, to each of its configurations that was not told that yet; and lets go of the task, unless
-- somebody has asked meanwhile that it be looked at again. Begins with clock.lua and owe.lua.
--
-- KEYS  the run's configurations, the tasks of its tenant that have some, the tasks that are to be looked at, the webhooks
--       that are due, then one for each webhook
-- ARGV  the run, the score that it was taken with, whether it has ended (1 or 0), what is told, as so many characters, how
--       long a webhook is kept (ms), then the configuration, the id and what is to be sent, sealed, of each webhook
-- Reply how many are owed now

local pushes, pushing, looked_at, due = unpack(KEYS, 1, 4)
local run, taken_with, has_ended, told, keep_ms = unpack(ARGV, 1, 5)

local keys, arguments = {}, {}
for at = 5, #KEYS do
    local config, id, text = unpack(ARGV, 6 + 3 * (at - 5), 8 + 3 * (at - 5))
    local kept = redis.call('HGET', pushes, config)
    if kept and string.sub(kept, 1, #told) ~= told then
        redis.call('HSET', pushes, config, told .. string.sub(kept, #told + 1))
        keys[#keys + 1] = KEYS[at]
        arguments[#arguments + 1] = id
        arguments[#arguments + 1] = text
    end
end
owe(due, now_ms(), keep_ms, keys, 1, arguments, 1)
if has_ended == '1' then redis.call('ZREM', pushing, run) end
local score = redis.call('ZSCORE', looked_at, run)
if score and tonumber(score) == tonumber(taken_with) then redis.call('ZREM', looked_at, run) end
return #keys
