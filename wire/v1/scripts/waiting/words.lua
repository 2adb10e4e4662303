-- What each worker of a queue has told: how many calls it takes at once. Begins other scripts, behind clock.lua.

-- A worker tells every few seconds; its word lasts for so long.
local WORD_MS = 20000

-- Adds up what live workers have told, for whoever lets calls go on.
local function count_slots(namespace, queue)
    local now, sum, latest_ms = now_ms(), 0, 0
    local workers, state = namespace .. ROOM_WORKERS .. queue, namespace .. ROOM .. queue
    local told = redis.call('HGETALL', workers)
    for i = 1, #told, 2 do
        local takes, until_ms = string.match(told[i + 1], '^(%d+) (%d+)$')
        until_ms = tonumber(until_ms)
        -- Further ahead than a word lasts: the clock was set back since. Who lives says it again.
        if not takes or until_ms <= now or until_ms > now + WORD_MS then
            redis.call('HDEL', workers, told[i])
        else
            sum = sum + tonumber(takes)
            latest_ms = math.max(latest_ms, until_ms)
        end
    end
    redis.call('HSET', state, 'slots', sum, 'slots_until', string.format('%.0f', latest_ms))
end

-- Forgets what a worker that is gone has told: nobody starts what would be let go on for it.
local function forget_word(stream, consumer)
    local namespace, queue = string.match(stream, '^(.-)' .. QUEUE .. '(.+):%d+$')
    local forgotten = queue and redis.pcall('HDEL', namespace .. ROOM_WORKERS .. queue, consumer)
    if forgotten == 1 then pcall(count_slots, namespace, queue) end
end
