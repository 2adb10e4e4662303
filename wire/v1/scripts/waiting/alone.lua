-- What goes on from a flow that waits alone, many at once. Begins other scripts, behind aside.lua.

-- Why nobody wants a call any more, if so. Its worker ends it by this word; it need not pass any gate for that.
local EXPIRED, WAS_CANCELLED = 'expired', 'cancelled'
local function has_expired(ends_ms) return ends_ms > 0 and ends_ms <= now_ms() and EXPIRED or nil end
local function is_cancelled(room, call)
    return redis.call('EXISTS', room.namespace .. CANCELLED .. call) == 1 and WAS_CANCELLED or nil
end
local function over(room, call, ends_ms) return has_expired(ends_ms) or is_cancelled(room, call) end

local is_lone, move_many
do  -- a script has no more than 200 local names at once
    -- Whether a tenant waits alone, on all levels, and has no limit of its own.
    function is_lone(room, level, tenant)
        for _, other in ipairs(LEVELS) do
            if redis.call('ZCARD', turns_of(room, other)) ~= (other == level and 1 or 0) then return false end
        end
        return not gate_of_tenant(room, tenant)
    end

    -- The only flow of a tenant that waits alone, if its calls have limits (others are moved by plain.lua). What waits in it
    -- goes in the order of its line.
    local function lone_flow(room, level, tenant)
        local flows = redis.call('ZRANGE', flows_of(room, level, tenant), 0, 1)
        local its_level, _, _, run = flow_parts(flows[1])
        return #flows == 1 and its_level and not run and flows[1] or nil
    end

    -- As many as may pass these gates together, and no more than `most`; 0 where one is shut.
    local function places_at(room, gates, most)
        for _, gate in ipairs(gates) do
            most = math.min(most, math.floor((room_at(room.namespace, gate, now_ms()))))
            if most < 1 then return 0 end
        end
        return most
    end

    -- The first `most` calls of a line, with their tags.
    local function heads_of(line, most)
        local heads, calls, tags = redis.call('ZRANGE', line, 0, most - 1, 'WITHSCORES'), {}, {}
        for i = 1, #heads, 2 do
            calls[#calls + 1], tags[#tags + 1] = heads[i], tag_of(heads[i + 1])
        end
        return calls, tags
    end

    -- Leaves out all from the first call on that may be a copy: whether it is one, is looked at by itself.
    local function leave_what_is_known(room, gates, calls)
        local known = #gates > 0 and #calls > 0 and known_among(room.namespace, gates, calls) or {}
        for i = 1, #calls do
            if known[i] then
                for later = #calls, i, -1 do calls[later] = nil end
                return
            end
        end
    end

    -- Whether any of these calls was cancelled, seldom as that is: asked once for all of them.
    local function is_any_cancelled(room, calls)
        local marks = {}
        for i, call in ipairs(calls) do marks[i] = room.namespace .. CANCELLED .. call end
        return redis.call('EXISTS', unpack(marks)) > 0
    end

    -- Sends these calls on, and has those pass the flow's gates that anybody still wants. The last tag of each run.
    local function send_together(room, level, flow, gates, text, calls, tags)
        local packed = redis.call('HMGET', room.calls, unpack(calls))
        local may_be_cancelled = is_any_cancelled(room, calls)
        local last_tags, placed, ends_ms = {}, {}, 0
        for i, call in ipairs(calls) do
            local message = message_in(room, level, packed[i])
            local why = has_expired(message.ends_ms) or (may_be_cancelled and is_cancelled(room, call)) or nil
            local place = send(room, message, why and '' or text, why)
            if not why then
                placed[#placed + 1], placed[#placed + 2] = call, place
                ends_ms = math.max(ends_ms, message.ends_ms)
            end
            last_tags[flow .. ' ' .. message.run] = tags[i]
        end
        if #gates > 0 and #placed > 0 then pass_together(room.namespace, gates, now_ms(), placed, ends_ms) end
        return last_tags
    end

    -- Moves many calls of a flow that waits alone: the same as to move one after the other, with a fraction of the commands.
    -- How many; 0 where the next one is to be looked at by itself.
    local MANY_MAX = 500
    function move_many(room, level, tenant, start, most)
        local flow = lone_flow(room, level, tenant)
        if not flow then return 0 end
        local _, _, text = flow_parts(flow)
        local line, gates = line_of(room, flow), gates_in(text)
        if text ~= '' and #gates == 0 then return 0 end
        most = places_at(room, gates, math.min(most, MANY_MAX))
        if most < 1 then return 0 end
        local calls, tags = heads_of(line, most)
        leave_what_is_known(room, gates, calls)
        if #calls == 0 then return 0 end
        local last_tags = send_together(room, level, flow, gates, text, calls, tags)
        redis.call('HDEL', room.calls, unpack(calls))
        redis.call('ZREM', room.ends, unpack(calls))
        redis.call('ZREMRANGEBYRANK', line, 0, #calls - 1)
        room.has_waiting = nil
        forget_runs(room, last_tags)
        charge(room, level, tenant, flow, start, #calls)
        take_next_turn(room, level, tenant)
        return #calls
    end
end
