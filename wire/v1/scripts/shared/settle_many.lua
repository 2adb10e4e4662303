-- Settles calls, whatever they are: what settle.lua does when it is not one alone that needs no more than that has. ARGV and the
-- reply are those of settle.lua. Begins behind free_all.lua, set_all.lua and tell.lua.

local jobs = ARGV[1]

-- Whose the first of so many pending entries are. Calls that are settled together were mostly delivered together, so that
-- one look finds what each of them would be asked for.
local function owners_from(stream, first, count)
    local owners = {}
    for _, entry in ipairs(redis.pcall('XPENDING', stream, GROUP, first, '+', count)) do owners[entry[1]] = entry[2] end
    return owners
end

local function owner_of(stream, entry)
    local pending = redis.pcall('XPENDING', stream, GROUP, entry, entry, 1)
    return pending[1] and pending[1][2]
end

-- Tells whoever waits for calls, each mailbox of many with one entry, in which their ids are names: an entry costs more than
-- what stands in it. A mailbox that takes nothing keeps no result from being stored, where whoever waits looks for it, too.
local TOLD_MAX, TOLD_BYTES = 64, 32768
local told, bytes = {}, {}
local function tell_now(box)
    local news = told[box]
    if #news == 2 then news = {'c', news[1], 'r', news[2]} end
    redis.pcall('XADD', box, 'MAXLEN', '~', REPLIES_MAX, '*', unpack(news))
    redis.pcall('EXPIRE', box, REPLIES_TTL_S)
    told[box] = nil
end
local function tell_soon(box, call, sealed)
    local news = told[box]
    if not news then
        news, bytes[box] = {}, 0
        told[box] = news
    end
    local n = #news
    news[n + 1], news[n + 2] = call, sealed
    bytes[box] = bytes[box] + #sealed
    if n + 2 >= 2 * TOLD_MAX or bytes[box] >= TOLD_BYTES then tell_now(box) end
end

-- Stores results together, if no call has one yet and each has one here; else whoever asks stores each alone. Whether it has.
local function keep_all(results, settlements)
    local words, is_known = {}, {}
    for n, at in ipairs(settlements) do
        local call = ARGV[at + 1]
        if is_known[call] then return false end
        is_known[call] = true
        words[2 * n - 1], words[2 * n] = results .. call, ARGV[at + 2]
    end
    return set_all(words, 'PX', RESULT_TTL_MS)
end

local outcomes = {}
local i = 2
while i <= #ARGV do
    local stream, consumer, results, replies = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local at, settled, done, freed, ended = i + 5, tonumber(ARGV[i + 4]), {}, {}, {}
    local owners = stream ~= '' and settled > 1 and owners_from(stream, ARGV[at], settled) or {}
    -- Those that are not too late: where each stands in ARGV, its place in the reply, and whether it counts for the first time.
    local in_time, places_in_reply, are_first = {}, {}, {}
    for _ = 1, settled do
        local entry, call, places = ARGV[at], ARGV[at + 1], ARGV[at + 3]
        local outcome, is_first = 1, true
        if stream ~= '' then
            -- The pending entry is the fence: once it is another worker's, a new attempt has begun and this one is too
            -- late. An entry that was taken from us but given to nobody yet is still ours to finish.
            local owner = owners[entry] or owner_of(stream, entry)
            if owner and owner ~= consumer and owner ~= RETURNED then outcome = 0 else done[#done + 1] = entry end
            -- Settled before, and its result fetched since: it is stored again, and counts once.
            is_first = owner ~= nil
            -- What submitted a job is done, whatever is said of its process since: the job ends the call.
            if not owner and redis.call('EXISTS', jobs .. call) == 1 then outcome = 2 end
            if places ~= '' and outcome == 1 then freed[#freed + 1] = at end
        end
        outcomes[#outcomes + 1] = outcome
        if outcome == 1 then
            local n = #in_time + 1
            in_time[n], places_in_reply[n], are_first[n] = at, #outcomes, is_first
        end
        at = at + 4 + (tonumber(places) or 0)
    end
    local are_kept = keep_all(results, in_time)
    for n, from in ipairs(in_time) do
        local call, sealed = ARGV[from + 1], ARGV[from + 2]
        if are_kept or keep(results, call, sealed) == 1 then
            tell_soon(mailbox(replies, call), call, sealed)
            if are_first[n] then
                local as = outcome_of(sealed)
                ended[as] = (ended[as] or 0) + 1
            end
        else
            outcomes[places_in_reply[n]] = 2
        end
    end
    count(results, ended)
    if #done > 0 then
        redis.call('XACK', stream, GROUP, unpack(done))
        redis.call('XDEL', stream, unpack(done))
    end
    if #freed > 0 then free_all(stream, freed) end
    i = at
end
for box in pairs(told) do tell_now(box) end
return outcomes
