-- Gates: limits of the fleet as one call meets them, asked and passed by the server's clock. Begins other scripts, behind
-- terms.lua.

-- Of a gate without places it is known when it opens, unless a tool declares another rate: it is looked at again so late.
-- What people say of limits is heard at once.
local LOOK_AGAIN_LATE_MS = 30000

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

local held_at
do
    -- Forgets holders that are gone, once in a while and a page of them at a time, as there may be many.
    local HOLDERS_AT_ONCE = 100
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
    function held_at(namespace, terms, most, now)
        local held = redis.call('HLEN', terms.holders)
        if held < math.min(most, MANY_HOLDERS) then return held end
        heal(namespace, terms, now)
        return redis.call('HLEN', terms.holders)
    end
end

-- How many may pass a gate now, and when to look at it again. `call`: whose place it may be already.
local function room_at(namespace, gate, now, call)
    local terms = terms_of(namespace, gate)
    local latest_ms = now + LOOK_AGAIN_LATE_MS
    if terms.paused_ms > now then return 0, math.min(terms.paused_ms, latest_ms) end
    if gate[1] == 'rate' then
        local starts, again_ms = starts_at(terms, now)
        return starts, math.min(again_ms, latest_ms)
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

local function has_passed(namespace, call)
    local place = redis.pcall('GET', mark_of_passed(namespace, call))
    if type(place) ~= 'string' then return false end
    return is_under_way(namespace, call, place) or redis.call('EXISTS', namespace .. RESULT .. call) == 1
end

-- Whether a message is a second one of a call whose first one has passed its gates and goes on.
local function is_copy(namespace, gates, call)
    local has_places = false
    for _, gate in ipairs(gates) do
        local place = gate[1] == 'concurrency' and redis.call('HGET', namespace .. HOLDERS .. gate_name(gate), call)
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
            take_starts(terms, now, 1)
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
    if not has_places then leave_mark(namespace, call, place) end
end

-- The gates in the text that a message carries; none where it is not such a text.
local gates_by_text = {}
local function gates_in(text)
    if text and gates_by_text[text] then return gates_by_text[text] end
    local gates = text and text ~= '' and decoded(text) or {}
    for i = #gates, 1, -1 do
        local gate = gates[i]
        if not (type(gate) == 'table' and (gate[1] == 'rate' or gate[1] == 'concurrency') and type(gate[2]) == 'string'
            and type(gate[3]) == 'string' and positive(gate[4]) and type(gate[5]) == 'number') then
            table.remove(gates, i)
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

-- What the field `waits_as` of a message says: when it passed its gates (ms, 0 if it has not), its deadline, its tenant and its
-- run. Whoever lets it wait again asks this: the call itself is for those to read who can believe it.
local function waits_as(fields)
    local passed, ends, size, rest = string.match(field_of(fields, 'waits_as') or '', '^(%d+) (%d+) (%d+) (.*)$')
    if not passed then return 0, 0, '', '' end
    return tonumber(passed), number(ends) or 0, string.sub(rest, 1, size), string.sub(rest, size + 1)
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
