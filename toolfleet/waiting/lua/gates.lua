-- Gates: limits of the fleet as one call meets them, asked and passed by the server's clock. A gate is an array
-- {kind, tool, value, amount, burst}. Begins other scripts; needs clock.lua and the constants of `toolfleet.waiting`.

-- How soon a gate with places is looked at again at the latest: a holder may be lost. Of other gates it is known when they
-- open, unless a tool declares another rate; what people say of limits is heard at once.
local LOOK_AGAIN_MS, LOOK_AGAIN_LATE_MS = 1000, 30000
-- How long what a gate remembers outlives its need. A rate that nothing is known of begins with one start, not with a
-- burst, so that losing it errs on the side of the limit.
local REMEMBERED_MS = 24 * 3600 * 1000
local ARRIVAL_KEPT_MS = 60000
-- Holders that one script looks after, and how many at one gate are many.
local HOLDERS_AT_ONCE, MANY_HOLDERS = 100, 1000

local function gate_name(gate) return gate[1] .. '|' .. gate[2] .. '|' .. gate[3] end

local function decoded(text)
    local readable, value = pcall(cjson.decode, text)
    return readable and type(value) == 'table' and value or {}
end

-- A number as Redis keeps it; nil for what is none, or none to count with.
local function number(text)
    local value = tonumber(text)
    return value and math.abs(value) < 2 ^ 53 and value or nil
end

local function positive(value)
    return type(value) == 'number' and value > 0 and value < math.huge and value or nil
end

-- What holds for a gate now: as declared, unless people have said otherwise of the tool or, more exactly, of the key.
local terms_by_name = {}
local function terms_of(namespace, gate)
    local name = gate_name(gate)
    local terms = terms_by_name[name]
    if terms then return terms end
    local tool, key = unpack(redis.pcall('HMGET', namespace .. LIMITS, gate[2], gate[2] .. '|' .. gate[3]))
    tool, key = tool and decoded(tool) or {}, key and decoded(key) or {}
    local function said(what) return positive(key[what]) or positive(tool[what]) end
    -- Whoever pauses a tool means all its keys, too.
    local said_pause_ms = math.max(positive(key.paused_until_ms) or 0, positive(tool.paused_until_ms) or 0)
    terms = {
        holders = namespace .. HOLDERS .. name,
        state = namespace .. GATE .. name,
        paused_ms = said_pause_ms,
    }
    if gate[1] == 'rate' then
        terms.each_ms = 1000 / (said('rate') or gate[4])
        terms.burst = math.max(1, said('burst') or gate[5])
    else
        terms.at_once = said('concurrency') or gate[4]
    end
    -- What the gate remembers is read once in a script, which alone changes it meanwhile.
    local arrival, paused, pause_ms = unpack(redis.call('HMGET', terms.state, 'arrival', 'paused', 'pause_ms'))
    terms.arrival_ms = number(arrival)
    local latest_ms = terms.each_ms and now_ms() + terms.burst * terms.each_ms
    if terms.arrival_ms and latest_ms and terms.arrival_ms > latest_ms then
        -- The rate has been raised since: nobody waits longer than its own burst takes.
        terms.arrival_ms = latest_ms
        redis.call('HSET', terms.state, 'arrival', string.format('%.6f', latest_ms))
    end
    terms.own_pause_ms = number(paused) or 0
    local pause_ends_ms = terms.own_pause_ms > 0 and now_ms() + (number(pause_ms) or 0)
    if pause_ends_ms and terms.own_pause_ms > pause_ends_ms then
        -- The clock was set back meanwhile: it ends after its own time at the latest.
        terms.own_pause_ms = pause_ends_ms
        redis.call('HSET', terms.state, 'paused', string.format('%.0f', pause_ends_ms))
    end
    terms.paused_ms = math.max(terms.paused_ms, terms.own_pause_ms)
    terms_by_name[name] = terms
    return terms
end

-- Whether the message at `place` is in its queue, or its call goes on as a job.
local function is_under_way(namespace, call, place)
    local stream, entry = string.match(place, '^(.+) (%S+)$')
    if stream then
        local found = redis.pcall('XRANGE', stream, entry, entry)
        if not found.err and found[1] then return true end
        local pending = redis.pcall('XPENDING', stream, GROUP, entry, entry, 1)
        if not pending.err and pending[1] then return true end
    end
    return redis.call('EXISTS', namespace .. JOB .. call) == 1
end

-- A holder is known by where its message is. One that is neither in a queue nor a job has lost its place.
local function still_holds(namespace, call, place, now)
    local waits_until = string.match(place, '^until (%d+)$')
    if waits_until then return tonumber(waits_until) > now end
    return is_under_way(namespace, call, place)
end

-- Forgets holders that are gone, once in a while and a page of them at a time, as there may be many.
local holders_left = HOLDERS_AT_ONCE
local function heal(namespace, terms, now)
    local checked_ms, cursor = unpack(redis.call('HMGET', terms.state, 'checked', 'cursor'))
    if holders_left <= 0 or math.abs(now - (number(checked_ms) or 0)) < LOOK_AGAIN_MS / 2 then return end
    cursor = string.match(cursor or '', '^%d+$') or '0'
    local next_cursor, held = unpack(redis.call('HSCAN', terms.holders, cursor, 'COUNT', HOLDERS_AT_ONCE))
    redis.call('HSET', terms.state, 'checked', string.format('%.0f', now), 'cursor', next_cursor)
    redis.call('PEXPIRE', terms.state, REMEMBERED_MS)
    for i = 1, #held, 2 do
        if not still_holds(namespace, held[i], held[i + 1], now) then redis.call('HDEL', terms.holders, held[i]) end
    end
    holders_left = holders_left - #held / 2
end

-- How many have a place. Where they are as many as may, those that are gone are looked for first; and also where they are
-- very many, lest lost ones pile up at a gate that is never full.
local function held_at(namespace, terms, most, now)
    local held = redis.call('HLEN', terms.holders)
    if held < math.min(most, MANY_HOLDERS) then return held end
    heal(namespace, terms, now)
    return redis.call('HLEN', terms.holders)
end

-- The moment from which one more start conforms to a rate (generic cell rate algorithm: ITU-T I.371).
local function conforms_ms(terms, arrival, now)
    local ahead_ms = (terms.burst - 1) * terms.each_ms
    arrival = arrival or now + ahead_ms
    return math.max(arrival, now) - ahead_ms, math.max(arrival, now)
end

-- How many may pass a gate now, and when to look at it again. `call`: whose place it may be already.
local function room_at(namespace, gate, now, call)
    local terms = terms_of(namespace, gate)
    local latest_ms = now + LOOK_AGAIN_LATE_MS
    if terms.paused_ms > now then return 0, math.min(terms.paused_ms, latest_ms) end
    if gate[1] == 'rate' then
        local opens_ms = conforms_ms(terms, terms.arrival_ms, now)
        if opens_ms > now then return 0, math.min(math.ceil(opens_ms), latest_ms) end
        local places = math.floor((now - opens_ms) / terms.each_ms) + 1
        return places, math.min(math.ceil(opens_ms + places * terms.each_ms), latest_ms)
    end
    local places = terms.at_once - held_at(namespace, terms, terms.at_once, now)
    if places < 1 and call and redis.call('HEXISTS', terms.holders, call) == 1 then return 1, now end
    return places, now + LOOK_AGAIN_MS
end

-- The first gate that a call may not pass now, and when to look at it again; nil when all are open. Places come before
-- rates: what waits for a rate holds no place.
local function first_shut(namespace, gates, now, call)
    for _, kind in ipairs({'concurrency', 'rate'}) do
        for _, gate in ipairs(gates) do
            if gate[1] == kind then
                local places, again_ms = room_at(namespace, gate, now, call)
                if places < 1 then return gate, again_ms end
            end
        end
    end
end

-- Holders are remembered for longer than any of their calls lasts, and not for ever.
local function keep_holders(terms, now, ends_ms)
    local lasts_ms = math.max(ends_ms - now, 0) + REMEMBERED_MS
    if lasts_ms <= (terms.holders_last_ms or 0) then return end
    terms.holders_last_ms = lasts_ms
    local text = string.format('%.0f', lasts_ms)
    if redis.call('PEXPIRE', terms.holders, text, 'GT') == 0 then redis.call('PEXPIRE', terms.holders, text, 'NX') end
end

-- What a call leaves that holds no place: a second message of it, sent as the reply to the first was lost, comes soon.
local PASSED_MS = 60000
local function mark_of_passed(namespace, call) return namespace .. GATE .. 'passed|' .. call end

local function has_passed(namespace, call)
    local place = redis.pcall('GET', mark_of_passed(namespace, call))
    if type(place) ~= 'string' then return false end
    return is_under_way(namespace, call, place) or redis.call('EXISTS', namespace .. RESULT .. call) == 1
end

-- Whether a message is a second one of a call whose first one has passed its gates and goes on.
local function is_copy(namespace, gates, call)
    local has_places = false
    for _, gate in ipairs(gates) do
        local place = gate[1] == 'concurrency' and redis.call('HGET', terms_of(namespace, gate).holders, call)
        if place and is_under_way(namespace, call, place) then return true end
        has_places = has_places or gate[1] == 'concurrency'
    end
    return #gates > 0 and not has_places and has_passed(namespace, call)
end

-- Takes a start from every rate and a place of every concurrency, for the message at `place` whose call ends at `ends_ms`.
local function pass(namespace, gates, now, call, place, ends_ms)
    local has_places = false
    for _, gate in ipairs(gates) do
        local terms = terms_of(namespace, gate)
        if gate[1] == 'rate' then
            local _, arrival_ms = conforms_ms(terms, terms.arrival_ms, now)
            local text = string.format('%.6f', arrival_ms + terms.each_ms)
            terms.arrival_ms = tonumber(text)
            redis.call('HSET', terms.state, 'arrival', text)
            if not terms.is_kept then
                -- Without a burst it means nothing any more once it is over, and a key may have a value for each call.
                local kept_ms = terms.burst > 1 and REMEMBERED_MS or ARRIVAL_KEPT_MS
                redis.call('PEXPIRE', terms.state, string.format('%.0f', terms.arrival_ms - now + kept_ms))
                terms.is_kept = true
            end
        else
            has_places = true
            -- The first message of the call may wait to be made due: then the place stays with that one.
            if redis.call('HSETNX', terms.holders, call, place) == 0
                and not still_holds(namespace, call, redis.call('HGET', terms.holders, call), now) then
                redis.call('HSET', terms.holders, call, place)
            end
            keep_holders(terms, now, ends_ms)
        end
    end
    if not has_places then redis.call('SET', mark_of_passed(namespace, call), place, 'PX', PASSED_MS) end
end

-- The gates in the text that a message carries; none where it is not such a text.
local gates_by_text = {}
local function gates_in(text)
    if text and gates_by_text[text] then return gates_by_text[text] end
    local gates = {}
    for _, gate in ipairs(text and text ~= '' and decoded(text) or {}) do
        if type(gate) == 'table' and (gate[1] == 'rate' or gate[1] == 'concurrency') and type(gate[2]) == 'string'
            and type(gate[3]) == 'string' and positive(gate[4]) and type(gate[5]) == 'number' then
            gates[#gates + 1] = gate
        end
    end
    if text then gates_by_text[text] = gates end
    return gates
end

-- A tenant's own gate comes last in a text. No text within JSON looks like its beginning.
local OF_TENANT = '["concurrency","@'
local function with_gate_of_tenant(text, gate)
    return (text == '' and '[' or string.sub(text, 1, -2) .. ',') .. cjson.encode(gate) .. ']'
end

local function without_gate_of_tenant(text)
    local at = string.find(text, OF_TENANT, 1, true)
    if not at then return text end
    return at > 2 and string.sub(text, 1, at - 2) .. ']' or ''
end

-- Those gates in a message's text that its tool declares, of one kind or of all, and their text.
local function declared_in(text, kind)
    text = without_gate_of_tenant(text)
    local gates, wanted = gates_in(text), {}
    for _, gate in ipairs(gates) do
        if not kind or gate[1] == kind then wanted[#wanted + 1] = gate end
    end
    if #wanted == #gates then return gates, text end
    return wanted, #wanted > 0 and cjson.encode(wanted) or ''
end

local function field_of(fields, wanted)
    for i = 1, #fields, 2 do
        if fields[i] == wanted then return fields[i + 1] end
    end
end

-- What was said of a message's places holds for the message in its new place, a stream's or `until` some time.
local function move_places(namespace, fields, place)
    local text = field_of(fields, 'gates')
    if not text then return end
    local call = field_of(fields, 'id')
    for _, gate in ipairs(call and gates_in(text) or {}) do
        local holders = namespace .. HOLDERS .. gate_name(gate)
        if gate[1] == 'concurrency' and redis.call('HEXISTS', holders, call) == 1 then
            redis.call('HSET', holders, call, place)
        end
    end
end
