-- Keeps the lists of runs as long as the runs: each is noted with its tenant under the time when its record ends, so that
-- those whose time has come are found by that time alone, whatever else is listed. Begins other scripts.

local AN_HOUR_MS = 3600 * 1000

-- What a run is noted as; no tenant's name begins within a run's id.
local function noted(run, tenant)
    return tenant == '' and run or run .. '\0' .. tenant
end

-- Takes runs off the lists whose record has ended, some at a time. One that was written to since it was noted lives on, and
-- is noted for its new end; one that somebody has given no end is looked at again in an hour.
local function trim_runs(ending, runs, names, states, runs_of, heads, now, at_most)
    for _, each in ipairs(redis.call('ZRANGE', ending, '-inf', now, 'BYSCORE', 'LIMIT', 0, at_most)) do
        local cut = string.find(each, '\0', 1, true)
        local run = cut and string.sub(each, 1, cut - 1) or each
        local left_ms = redis.call('PTTL', heads .. run)
        if left_ms == -2 then
            redis.call('ZREM', ending, each)
            redis.call('ZREM', runs, run)
            redis.call('ZREM', names, each)
            redis.call('ZREM', states, run)
            if cut then redis.call('ZREM', runs_of .. string.sub(each, cut + 1), run) end
        else
            redis.call('ZADD', ending, now + (left_ms < 0 and AN_HOUR_MS or left_ms), each)
        end
    end
end
