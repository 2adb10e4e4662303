-- How many messages begin to wait at once: the same as to let one wait after the other (lines.lua), with a fraction of the
-- commands. Begins publish_in_turn.lua, behind room.lua.

local let_many_wait, take_back
do
    -- Those of which no message waits yet, each once: any other is a copy, and dropped.
    local function without_copies(room, messages)
        local calls, news, seen = {}, {}, {}
        for i, message in ipairs(messages) do calls[i] = message.call end
        local known = redis.call('HMGET', room.calls, unpack(calls))
        for i, message in ipairs(messages) do
            if known[i] or seen[message.call] then
                count_copy(room)
            else
                news[#news + 1], seen[message.call] = message, true
            end
        end
        return news
    end

    local function add(list, name, value) list[#list + 1], list[#list + 2] = name, value end

    -- The arguments of the commands that let these wait: their messages, their deadlines, how far their runs are, and their
    -- lines by flow; and the flows in which nobody has waited so far.
    local function as_arguments(room, messages)
        local packed, ends, runs, finishes, lines, begun = {}, {}, {}, {}, {}, {}
        for _, message in ipairs(messages) do
            local flow, call = message.flow, message.call
            local tag, is_first = tag_behind(room, flow, message.run)
            if is_first then begun[#begun + 1] = flow end
            finishes[flow .. ' ' .. message.run] = tag + 1
            lines[flow] = lines[flow] or {}
            add(lines[flow], string.format('%.17g', tag + arrival_in(room)), call)
            add(packed, call, packed_message(flow, message))
            if message.ends_ms > 0 then add(ends, string.format('%.0f', message.ends_ms), call) end
        end
        for field, finish in pairs(finishes) do add(runs, field, finish) end
        return packed, ends, runs, lines, begun
    end

    -- Lets messages wait, of which each has its flow: no more of them than one command takes.
    function let_many_wait(room, messages)
        local news = without_copies(room, messages)
        if #news == 0 then return end
        local packed, ends, runs, lines, begun = as_arguments(room, news)
        room.entering = news
        redis.call('HSET', room.calls, unpack(packed))
        for flow, line in pairs(lines) do redis.call('ZADD', line_of(room, flow), unpack(line)) end
        if #ends > 0 then redis.call('ZADD', room.ends, unpack(ends)) end
        redis.call('HSET', room.runs, unpack(runs))
        room.has_waiting = true
        for _, flow in ipairs(begun) do activate(room, flow, times_of(room).moves) end
        room.entering = nil
    end

    -- Forgets what half a try has left.
    function take_back(room)
        for _, message in ipairs(room.entering or {}) do
            redis.pcall('HDEL', room.calls, message.call)
            redis.pcall('ZREM', line_of(room, message.flow), message.call)
            redis.pcall('ZREM', room.ends, message.call)
        end
        room.heads, room.finishes, room.has_waiting, room.entering = {}, {}, nil, nil
    end
end
