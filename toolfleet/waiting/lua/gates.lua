-- Gates: limits of the fleet as one call meets them, asked and passed by the server's clock. A gate is an array
-- {kind, tool, value, amount, burst}. Begins other scripts; needs clock.lua and the constants of `toolfleet.waiting`.

-- How soon a gate is looked at again at the latest: what changes it may come from outside (a person, a lost holder).
local LOOK_AGAIN_MS = 1000
-- How long what a gate remembers outlives its need. A rate that nothing is known of begins with one start, not with a
-- burst, so that losing it errs on the side of the limit.
local REMEMBERED_MS = 24 * 3600 * 1000

local function gate_name(gate) return gate[1] .. '|' .. gate[2] .. '|' .. gate[3] end

local function decoded(text)
    local readable, value = pcall(cjson.decode, text)
    return readable and type(value) == 'table' and value or {}
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
    local tool, key = unpack(redis.call('HMGET', namespace .. LIMITS, gate[2], gate[2] .. '|' .. gate[3]))
    tool, key = tool and decoded(tool) or {}, key and decoded(key) or {}
    local function said(what) return positive(key[what]) or positive(tool[what]) end
    terms = {
        holders = namespace .. HOLDERS .. name,
        state = namespace .. GATE .. name,
        paused_ms = said('paused_until_ms') or 0,
    }
    if gate[1] == 'rate' then
        terms.each_ms = 1000 / (said('rate') or gate[4])
        terms.burst = math.max(1, said('burst') or gate[5])
    else
        terms.at_once = said('concurrency') or gate[4]
    end
    -- What the gate remembers is read once in a script, which alone changes it meanwhile.
    local arrival, paused = unpack(redis.call('HMGET', terms.state, 'arrival', 'paused'))
    terms.arrival_ms = tonumber(arrival)
    terms.own_pause_ms = tonumber(paused) or 0
    terms.paused_ms = math.max(terms.paused_ms, terms.own_pause_ms)
    terms_by_name[name] = terms
    return terms
end

-- A holder is known by where its message is. One that is neither in a queue nor a job has lost its place.
local function still_holds(namespace, call, place, now)
    local waits_until = string.match(place, '^until (%d+)$')
    if waits_until then return tonumber(waits_until) > now end
    local stream, entry = string.match(place, '^(.+) (%S+)$')
    if stream then
        local pending = redis.pcall('XPENDING', stream, GROUP, entry, entry, 1)
        if not pending.err and pending[1] then return true end
        local found = redis.pcall('XRANGE', stream, entry, entry)
        if not found.err and found[1] then return true end
    end
    return redis.call('EXISTS', namespace .. JOB .. call) == 1
end

-- Forgets holders that are gone, once in a while.
local function heal(namespace, terms, now)
    local checked_ms = tonumber(redis.call('HGET', terms.state, 'checked') or 0)
    if math.abs(now - checked_ms) < LOOK_AGAIN_MS / 2 then return end
    redis.call('HSET', terms.state, 'checked', string.format('%.0f', now))
    redis.call('PEXPIRE', terms.state, REMEMBERED_MS)
    local held = redis.call('HGETALL', terms.holders)
    for i = 1, #held, 2 do
        if not still_holds(namespace, held[i], held[i + 1], now) then redis.call('HDEL', terms.holders, held[i]) end
    end
end

-- The moment from which one more start conforms to a rate (generic cell rate algorithm: ITU-T I.371).
local function conforms_ms(terms, arrival, now)
    local ahead_ms = (terms.burst - 1) * terms.each_ms
    -- A rate may have been raised since: then nobody waits longer than its own burst takes.
    arrival = arrival and math.min(arrival, now + terms.burst * terms.each_ms) or now + ahead_ms
    return math.max(arrival, now) - ahead_ms, math.max(arrival, now)
end

-- How many may pass a gate now, and when to look at it again. `call`: whose place it may be already.
local function room_at(namespace, gate, now, call)
    local terms = terms_of(namespace, gate)
    if terms.paused_ms > now then return 0, math.min(terms.paused_ms, now + LOOK_AGAIN_MS) end
    if gate[1] == 'rate' then
        local opens_ms = conforms_ms(terms, terms.arrival_ms, now)
        if opens_ms > now then return 0, math.min(math.ceil(opens_ms), now + LOOK_AGAIN_MS) end
        local places = math.floor((now - opens_ms) / terms.each_ms) + 1
        return places, math.min(math.ceil(opens_ms + places * terms.each_ms), now + LOOK_AGAIN_MS)
    end
    if redis.call('HLEN', terms.holders) >= terms.at_once then
        if call and redis.call('HEXISTS', terms.holders, call) == 1 then return 1, now end
        heal(namespace, terms, now)
    end
    return terms.at_once - redis.call('HLEN', terms.holders), now + LOOK_AGAIN_MS
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

-- Takes a start from every rate and a place of every concurrency, for the message at `place`.
local function pass(namespace, gates, now, call, place)
    for _, gate in ipairs(gates) do
        local terms = terms_of(namespace, gate)
        if gate[1] == 'rate' then
            local _, arrival_ms = conforms_ms(terms, terms.arrival_ms, now)
            local text = string.format('%.6f', arrival_ms + terms.each_ms)
            terms.arrival_ms = tonumber(text)
            redis.call('HSET', terms.state, 'arrival', text)
            if not terms.is_kept then
                redis.call('PEXPIRE', terms.state, string.format('%.0f', terms.arrival_ms - now + REMEMBERED_MS))
                terms.is_kept = true
            end
        elseif redis.call('HSETNX', terms.holders, call, place) == 0 then
            -- A second message of a call that runs has no place of its own, and takes none from it as it goes.
            if not still_holds(namespace, call, redis.call('HGET', terms.holders, call), now) then
                redis.call('HSET', terms.holders, call, place)
            end
        end
    end
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
