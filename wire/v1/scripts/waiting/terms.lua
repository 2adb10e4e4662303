-- What holds for a gate now, and how calls pass it that may. A gate is an array {kind, tool, value, amount, burst}. Begins
-- other scripts, behind clock.lua and lasting.lua; needs the constants of `toolfleet.waiting`.

-- How soon a gate with places is looked at again at the latest: a holder may be lost.
local LOOK_AGAIN_MS = 1000

local function gate_name(gate) return gate[1] .. '|' .. gate[2] .. '|' .. gate[3] end

local function decoded(text)
    local readable, value = pcall(cjson.decode, text)
    return readable and type(value) == 'table' and value or {}
end

local function positive(value)
    return type(value) == 'number' and value > 0 and value < math.huge and value or nil
end

-- A number as Redis keeps it; nil for what is none, or none to count with.
local function number(text)
    local value = tonumber(text)
    return value and math.abs(value) < 2 ^ 53 and value or nil
end

-- What people have said of a tool, and of its key; the gates of a call mostly have the same.
local said_of
do  -- a script has no more than 200 local names at once
    local NOTHING = {}
    local said_name, said_of_tool, said_of_key
    function said_of(namespace, tool, value)
        local name = tool .. '|' .. value
        if said_name ~= name then
            local of_tool, of_key = unpack(redis.pcall('HMGET', namespace .. LIMITS, tool, name))
            said_name, said_of_tool = name, of_tool and decoded(of_tool) or NOTHING
            said_of_key = of_key and decoded(of_key) or NOTHING
        end
        return said_of_tool, said_of_key
    end
end

-- What holds for a gate now: as declared, unless people have said otherwise of the tool or, more exactly, of the key.
local terms_by_name = {}
local function terms_of(namespace, gate)
    local name, now = gate_name(gate), now_ms()
    local terms = terms_by_name[name]
    if terms then return terms end
    local tool, key = said_of(namespace, gate[2], gate[3])
    local is_rate, state = gate[1] == 'rate', namespace .. GATE .. name
    -- What the gate remembers is read once in a script, which alone changes it meanwhile.
    local arrival, paused, pause_ms = unpack(redis.call('HMGET', state, 'arrival', 'paused', 'pause_ms'))
    terms = {
        holders = namespace .. HOLDERS .. name,
        state = state,
        at_once = not is_rate and (positive(key.concurrency) or positive(tool.concurrency) or gate[4]) or nil,
        each_ms = is_rate and 1000 / (positive(key.rate) or positive(tool.rate) or gate[4]) or nil,
        burst = is_rate and math.max(1, positive(key.burst) or positive(tool.burst) or gate[5]) or nil,
        arrival_ms = number(arrival),
        own_pause_ms = number(paused) or 0,
        -- Whoever pauses a tool means all its keys, too.
        paused_ms = math.max(positive(key.paused_until_ms) or 0, positive(tool.paused_until_ms) or 0),
        wanted = 0,
        held = nil,
    }
    local latest_ms = is_rate and now + terms.burst * terms.each_ms
    if terms.arrival_ms and latest_ms and terms.arrival_ms > latest_ms then
        -- The rate has been raised since: nobody waits longer than its own burst takes.
        terms.arrival_ms = latest_ms
        redis.call('HSET', state, 'arrival', string.format('%.6f', latest_ms))
    end
    local pause_ends_ms = terms.own_pause_ms > 0 and now + (number(pause_ms) or 0)
    if pause_ends_ms and terms.own_pause_ms > pause_ends_ms then
        -- The clock was set back meanwhile: it ends after its own time at the latest.
        terms.own_pause_ms = pause_ends_ms
        redis.call('HSET', state, 'paused', string.format('%.0f', pause_ends_ms))
    end
    terms.paused_ms = math.max(terms.paused_ms, terms.own_pause_ms)
    terms_by_name[name] = terms
    return terms
end

-- How many starts conform to a rate now, and when one more does (generic cell rate algorithm: ITU-T I.371).
local function starts_at(terms, now)
    local ahead_ms = (terms.burst - 1) * terms.each_ms
    local opens_ms = math.max(terms.arrival_ms or now + ahead_ms, now) - ahead_ms
    if opens_ms > now then return 0, math.ceil(opens_ms) end
    local starts = math.floor((now - opens_ms) / terms.each_ms) + 1
    return starts, math.ceil(opens_ms + starts * terms.each_ms)
end

-- Takes so many starts from a rate.
local function take_starts(terms, now, starts)
    local known_ms = terms.arrival_ms
    local arrival_ms = math.max(known_ms or now + (terms.burst - 1) * terms.each_ms, now)
    local text = string.format('%.6f', arrival_ms + starts * terms.each_ms)
    terms.arrival_ms = tonumber(text)
    redis.call('HSET', terms.state, 'arrival', text)
    -- Without a burst it means nothing any more once it is over, and a key may have a value for each call. This is put off
    -- ten times while it lasts, not with each start.
    local kept_ms = terms.burst > 1 and REMEMBERED_MS or ARRIVAL_KEPT_MS
    local tenth_ms = kept_ms / 10
    if known_ms and math.floor(known_ms / tenth_ms) == math.floor(terms.arrival_ms / tenth_ms) then return end
    redis.call('PEXPIRE', terms.state, string.format('%.0f', terms.arrival_ms - now + kept_ms))
end

-- Holders are remembered for longer than any of their calls lasts, and not for ever.
local function keep_holders(terms, now, ends_ms)
    local lasts_ms = math.max(ends_ms - now, 0) + REMEMBERED_MS
    if lasts_ms <= (terms.holders_last_ms or 0) then return end
    terms.holders_last_ms = lasts_ms
    local text = string.format('%.0f', lasts_ms)
    if terms.held == 0 then
        redis.call('PEXPIRE', terms.holders, text)
    elseif redis.call('PEXPIRE', terms.holders, text, 'GT') == 0 then
        redis.call('PEXPIRE', terms.holders, text, 'NX')
    end
end

-- What a call leaves that holds no place.
local function mark_of_passed(namespace, call) return namespace .. GATE .. 'passed|' .. call end
local function leave_mark(namespace, call, place)
    redis.call('SET', mark_of_passed(namespace, call), place, 'PX', PASSED_MS)
end

-- Which of these calls may have passed these gates before, by their numbers; nil if none has.
local function known_among(namespace, gates, calls)
    local known, has_places = nil, false
    local function note(found)
        for i = 1, #calls do
            if found[i] then
                known = known or {}
                known[i] = true
            end
        end
    end
    for _, gate in ipairs(gates) do
        if gate[1] == 'concurrency' then
            has_places = true
            local terms = terms_of(namespace, gate)
            if terms.held ~= 0 then note(redis.call('HMGET', terms.holders, unpack(calls))) end
        end
    end
    if not has_places then
        local marks = {}
        for i, call in ipairs(calls) do marks[i] = mark_of_passed(namespace, call) end
        note(redis.call('MGET', unpack(marks)))
    end
    return known
end

-- What `pass` does, for many new calls at once that may all pass: `placed` is each call and where its message is, in turn.
local function pass_together(namespace, gates, now, placed, ends_ms)
    local has_places = false
    for _, gate in ipairs(gates) do
        local terms = terms_of(namespace, gate)
        if gate[1] == 'rate' then
            take_starts(terms, now, #placed / 2)
        else
            has_places = true
            redis.call('HSET', terms.holders, unpack(placed))
            keep_holders(terms, now, ends_ms)
        end
    end
    if has_places then return end
    for i = 1, #placed, 2 do leave_mark(namespace, placed[i], placed[i + 1]) end
end
