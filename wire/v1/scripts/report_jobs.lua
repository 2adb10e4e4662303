-- Takes what claimants say of their jobs; only the newest claim of a job counts. Begins with tell.lua, clock.lua and
-- the function `waiting_room`, which has what is in room.lua.
--
-- ARGV  JSON with the prefixes `jobs`, `schedules`, `results`, `marks`, `ended` and `replies`, then for each job JSON and
--       a text. The JSON has `call`, `fence`, `wait_ms`, `what` and, unless nobody could read the job, `tool`, `reply_to`,
--       `name` (which job of the call it is), `deadline_ms` and `ends_ms`. `what` is one of
--         wait    ask again after the wait, at the deadline, or at once if it was cancelled; the text is its state
--         retry   the same, cancelled or not
--         hold    still at it: the lease is the wait from now
--         end     the text is the sealed result
--         drop    forget it
-- Reply for each job 0 if it was claimed again or has ended since, 1 if the word counted, 2 if its call had a result

local prefix = cjson.decode(ARGV[1])
local now = now_ms()
local free_places  -- made with the first job that ends: most are only asked about

-- The job's end: stored and told if `sealed` is there, forgotten either way, but for the mark that it has ended.
local function finish(job, schedule, word, sealed)
    local outcome = 1
    if sealed then
        local replies = prefix.replies .. word.reply_to
        outcome = settle(prefix.results, word.call, sealed, replies)
        redis.call('EXPIRE', replies, REPLIES_TTL_S)
    end
    if word.name then redis.call('SET', prefix.ended .. word.call, word.name, 'PXAT', word.ends_ms) end
    free_places = free_places or waiting_room()
    free_places(job, word.call)
    redis.call('DEL', job)
    if schedule then redis.call('ZREM', schedule, word.call) end
    return outcome
end

local function hear(word, text)
    local job = prefix.jobs .. word.call
    if redis.call('TYPE', job).ok ~= 'hash' then return 0 end
    local fence = redis.call('HGET', job, 'fence')
    if not fence or tonumber(fence) ~= word.fence then return 0 end
    -- What is said comes from the sealed record; the fields of the hash are anybody's.
    local tool = word.tool or redis.call('HGET', job, 'tool')
    local schedule = tool and prefix.schedules .. tool
    if word.what == 'drop' then return finish(job, schedule, word) end
    if redis.pcall('GET', prefix.ended .. word.call) == word.name then
        -- It ended while it was asked about, and somebody has brought it back.
        finish(job, schedule, word)
        return 0
    end
    if word.what == 'end' then return finish(job, schedule, word, text) end
    if word.what == 'hold' then
        redis.call('HSET', job, 'until', now + word.wait_ms)
        redis.call('ZADD', schedule, now + word.wait_ms, word.call)
        return 1
    end
    local due = math.min(now + word.wait_ms, word.deadline_ms)
    if word.what == 'wait' and redis.call('EXISTS', prefix.marks .. word.call) == 1 then due = now end
    redis.call('HSET', job, 'state', text)
    redis.call('HDEL', job, 'until')
    redis.call('ZADD', schedule, due, word.call)
    return 1
end

local outcomes = {}
for i = 2, #ARGV, 2 do outcomes[#outcomes + 1] = hear(cjson.decode(ARGV[i]), ARGV[i + 1]) end
return outcomes
