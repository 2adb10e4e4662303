-- Delivers up to `budget` messages, claims the calls among them, and says which were cancelled while they waited.
-- Levels come strictly in turn, and the queues of one level in the order given; within a stream what was
-- returned comes before what is new. A message whose call another message has claimed is a copy: dropped, counted.
-- What the streams do not fill, the waiting rooms of the queues do. Begins behind clock.lua, set_all.lua and the function
-- `waiting_room`, which has what is in room.lua.
--
-- KEYS  the streams, first to last
-- ARGV  group, consumer, returned, budget, claim prefix, prefix of the cancel marks, prefix of results, counters, how
--       many calls the consumer takes at once (0: as it last said), then each queue's scheduled set
-- Reply {milliseconds until a scheduled message is due or a gate may open, -1, or -2 to fetch again at once,
--        {{stream's position, deliveries, claimed, cancelled, returned, {field's name…}, {id, value…, id, value…}}…}}: what is
--        true of messages that follow each other is said once for all of them; flags are 0 or 1
--
-- Nothing may fail once a message has been delivered: the reply would be lost with it. Hence every `pcall`.

local group, consumer, returned = ARGV[1], ARGV[2], ARGV[3]
-- No more at once than one command takes names of: who wants more comes back at once.
local FETCHED_MAX = 2000
local wanted, claim_prefix, cancel_prefix = tonumber(ARGV[4]), ARGV[5], ARGV[6]
local budget = math.min(wanted, FETCHED_MAX)
local result_prefix, counters = ARGV[7], ARGV[8]
-- Entries that are delivered; of each its call, and what it shares with most: position, deliveries, claimed, cancelled, returned.
local CLAIMED, CANCELLED = 3, 4
local delivered, tasks, manners = {}, {}, {}

-- Most runs need nothing of a waiting room, so it is only made where one does.
local room_for, safely, note_worker, move_places, look_and_admit, LOOK_AGAIN_LATE_MS
local passes_rates, put_back, waits_for_tenant
local function make_room()
    if room_for then return end
    room_for, safely, note_worker, move_places, look_and_admit, LOOK_AGAIN_LATE_MS, passes_rates, put_back,
        waits_for_tenant = waiting_room()
end
local function room_of_home(home)
    make_room()
    return room_for(home.namespace, home.queue)
end

-- A message that was with so many lost workers may be what kills them. A worker gets one such at a time and the next one a
-- second later, so that a killer takes few others with it, and they are not blamed until they too count as killers.
local SUSPECT_AFTER, ALONE_MS = 2, 1000
local SUSPECTS_PASSED, HELD_MAX = 200, 2000

local function failed(reply)
    return type(reply) == 'table' and reply.err
end

-- Whether it is a message that may go to one of the streams: a stream, then names and texts. Anybody may have written it.
local function is_message(entry)
    if type(entry) ~= 'table' or #entry < 3 or #entry > 100 or #entry % 2 == 0 then return false end
    for _, part in ipairs(entry) do
        if type(part) ~= 'string' then return false end
    end
    for _, stream in ipairs(KEYS) do
        if stream == entry[1] then return true end
    end
    return false
end

-- A message that was passed on and waits is claimed under another name, as it has no id yet.
local function take_over_claim(entry, id)
    local task, held_as
    for i = 2, #entry, 2 do
        if entry[i] == 'id' then
            task = entry[i + 1]
        elseif entry[i] == 'held_as' then
            held_as = entry[i + 1]
        end
    end
    if not task or not held_as then return end
    local key = claim_prefix .. task
    if redis.pcall('GET', key) == held_as then redis.pcall('SET', key, id, 'XX', 'KEEPTTL') end
end

-- Puts a message that is due into its stream, or into the room if its tenant has a limit that it does not hold a place of.
local function make_one_due(entry, home)
    room_of_home(home)
    local is_done, waits = pcall(waits_for_tenant, entry[1], {unpack(entry, 2)})
    if is_done and waits then return end
    local id = redis.pcall('XADD', entry[1], '*', unpack(entry, 2))
    if failed(id) then return id end
    take_over_claim(entry, id)
    pcall(move_places, home.namespace, {unpack(entry, 2)}, entry[1] .. ' ' .. id)
end

local function make_due(scheduled, home)
    local now = now_ms()
    local due = redis.pcall('ZRANGEBYSCORE', scheduled, '-inf', now, 'LIMIT', 0, 200)
    if failed(due) then return nil end
    for _, member in ipairs(due) do
        local readable, entry = pcall(cjson.decode, member)
        if not readable or not is_message(entry) then
            entry = {KEYS[1], 'raw', member}  -- its reader will find it malformed and bury it
        end
        if failed(make_one_due(entry, home)) then break end
        redis.call('ZREM', scheduled, member)
    end
    local first = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
    return first[2] and math.max(0, first[2] - now)
end

-- When a claim lapses: so long after its message was sent, of which an entry's id tells, however long that has waited. A
-- moment from now at least: of two copies that are read late only one may start. Asked once for all that are read together
-- and last as long, as of the newest: a claim may last longer than it must.
local CLAIM_MIN_MS = 60000
local began_ms
local newest_read, lapses
local function lapse_with(newest) newest_read, lapses = newest, {} end
local function lapses_at(ttl_s)
    local at = lapses[ttl_s]
    if at then return at end
    began_ms = began_ms or now_ms()
    local sent_ms = math.min(tonumber(string.match(newest_read, '^(%d+)%-')) or began_ms, began_ms)
    local lasts_ms = math.floor(tonumber(ttl_s) or 0) * 1000
    at = lasts_ms > 0 and string.format('%.0f', math.max(sent_ms + lasts_ms, began_ms + CLAIM_MIN_MS)) or ''
    lapses[ttl_s] = at
    return at
end

-- 1: claimed for this message. 0: nothing to claim, or the claim could not be written. nil: another message has it.
local function claim(id, task, ttl_s)
    if not task or not ttl_s then return 0 end
    local at = lapses_at(ttl_s)
    if at == '' then return 0 end
    local key = claim_prefix .. task
    local set = redis.pcall('SET', key, id, 'NX', 'PXAT', at)
    if set and not set.err then return 1 end
    if set then return 0 end
    local holder = redis.pcall('GET', key)
    if failed(holder) then return 0 end
    return holder == id and 1 or nil
end

-- A call with a rate took its start as it went into the stream. One that somebody had before, or that has lain there, takes
-- another one now, or waits for it in the room: many would start at once else. What has lain there twice goes on, lest a
-- fleet that is always late starts nothing; and so does what may have killed its workers, of which few go at once anyway.
local LATE_MS, PUT_BACK_MAX = 250, 1000
local put_back_later, looks_at_once = {}, false
local function is_late(passed_ms)
    began_ms = began_ms or now_ms()
    return passed_ms and began_ms - passed_ms > LATE_MS
end

local function has_to_wait(position, id, fields, deliveries, given_back, gates, passed_ms)
    local starts_again = given_back == 1 and deliveries <= SUSPECT_AFTER
    if not (starts_again or is_late(passed_ms)) or not string.find(gates, '"rate"', 1, true) then return false end
    make_room()
    local is_done, passes = pcall(passes_rates, KEYS[position], id, fields)
    if not is_done or passes then return false end
    put_back_later[#put_back_later + 1] = {KEYS[position], group, id, fields, deliveries - 1, claim_prefix}
    return true
end

-- The last one first, as each becomes the first of its own. What cannot be put back comes to somebody again.
local function put_all_back()
    for i = #put_back_later, 1, -1 do
        local stream, _, id = unpack(put_back_later[i])
        if not pcall(put_back, unpack(put_back_later[i])) then
            redis.pcall('XCLAIM', stream, group, returned, 0, id, 'JUSTID')
            redis.pcall('HINCRBY', counters, 'waiting_room_failures', 1)
        end
    end
end

-- What an entry says of its message. Most say no more than this, in this order.
local PLAIN_FIELDS, OF_GATES = 10, 4
local function said(fields)
    local more = #fields - PLAIN_FIELDS
    if (more == 0 or (more == OF_GATES and fields[11] == 'gates' and fields[13] == 'waits_as')) and fields[7] == 'id'
        and fields[9] == 'claim' and fields[1] == 'b' and fields[3] == 'h' and fields[5] == 'p' then
        return fields[8], fields[10], fields[12], fields[14] and tonumber(string.match(fields[14], '^%d+'))
    end
    local task, ttl_s, gates, passed_ms, is_put_back
    for i = 1, #fields, 2 do
        local name = fields[i]
        if name == 'id' then
            task = fields[i + 1]
        elseif name == 'claim' then
            ttl_s = fields[i + 1]
        elseif name == 'gates' then
            gates = fields[i + 1]
        elseif name == 'waits_as' then
            passed_ms = tonumber(string.match(fields[i + 1], '^%d+'))
        elseif name == 'late' then
            is_put_back = true
        end
    end
    return task, ttl_s, gates, not is_put_back and passed_ms ~= 0 and passed_ms or nil
end

-- Claims together what a read has brought: by one command for all claims that lapse at one moment. Which are; what is not, as
-- another message of its call has come with it, say, is claimed alone.
local function claimed_together(due, calls, lasting)
    local moments, is_known, are_claimed = {}, {}, {}
    for i, task in pairs(calls) do
        local at = lasting[i] and not is_known[task] and lapses_at(lasting[i]) or ''
        if at ~= '' then
            local moment = moments[at]
            if not moment then
                moment = {words = {}, places = {}}
                moments[at] = moment
            end
            local words, n = moment.words, #moment.words
            words[n + 1], words[n + 2] = claim_prefix .. task, due[i][1]
            moment.places[n / 2 + 1] = i
            is_known[task] = true
        end
    end
    for at, moment in pairs(moments) do
        if set_all(moment.words, 'PXAT', at) then
            for _, i in ipairs(moment.places) do are_claimed[i] = 1 end
        end
    end
    return are_claimed
end

local function times_of(id, deliveries) return deliveries and deliveries[id] + 1 or 1 end

-- Delivers entries of one stream. Of those that were given back, `deliveries` says how often each was delivered.
local function deliver(position, entries, deliveries)
    local due, calls, lasting, shared, given_back = {}, {}, {}, {}, deliveries and 1 or 0
    for _, entry in ipairs(entries) do
        local id, fields = entry[1], entry[2]
        local task, ttl_s, gates, passed_ms = said(fields)
        local waits = gates and has_to_wait(position, id, fields, times_of(id, deliveries), given_back, gates, passed_ms)
        if not waits then
            local n = #due + 1
            due[n], calls[n], lasting[n] = entry, task, ttl_s
        end
    end
    local are_claimed = claimed_together(due, calls, lasting)
    for i, entry in ipairs(due) do
        local id = entry[1]
        local claimed = are_claimed[i] or claim(id, calls[i], lasting[i])
        if claimed then
            local n, times = #delivered + 1, times_of(id, deliveries)
            local manner = shared[2 * times + claimed]
            if not manner then
                manner = {position, times, claimed, 0, given_back}
                shared[2 * times + claimed] = manner
            end
            delivered[n], tasks[n], manners[n] = entry, calls[i], manner
        else
            redis.pcall('XACK', KEYS[position], group, id)
            redis.pcall('XDEL', KEYS[position], id)
            redis.pcall('HINCRBY', counters, 'duplicate_messages', 1)
        end
    end
end

-- Says one thing of one message alone.
local function say_of(i, at, flag)
    manners[i] = {unpack(manners[i])}
    manners[i][at] = flag
end

-- Notes which of the delivered calls were cancelled, and which have a result: those are not claimed, and their worker finds
-- whether it is a true one. Mostly there is neither, which one command says of all.
local function look_for_marks()
    local keys, n = {}, 0
    for i = 1, #delivered do
        local task = tasks[i]
        if task then
            keys[n + 1] = cancel_prefix .. task
            n = n + 1
            if manners[i][CLAIMED] == 1 then
                keys[n + 1] = result_prefix .. task
                n = n + 1
            end
        end
    end
    if n == 0 or redis.pcall('EXISTS', unpack(keys)) == 0 then return end
    for i, task in pairs(tasks) do
        if redis.pcall('EXISTS', cancel_prefix .. task) == 1 then say_of(i, CANCELLED, 1) end
        if manners[i][CLAIMED] == 1 and redis.pcall('EXISTS', result_prefix .. task) ~= 0 then say_of(i, CLAIMED, 0) end
    end
end

local function are_names_of(fields, names)
    if 2 * #names ~= #fields then return false end
    for k, name in ipairs(names) do
        if fields[2 * k - 1] ~= name then return false end
    end
    return true
end

-- What is delivered, as the reply has it.
local function told()
    local kinds, manner, names, values, n = {}, nil, nil, nil, 0
    for i, entry in ipairs(delivered) do
        local fields = entry[2]
        if manner ~= manners[i] or not are_names_of(fields, names) then
            manner, names, values, n = manners[i], {}, {}, 0
            for k = 1, #fields, 2 do names[#names + 1] = fields[k] end
            local kind = {unpack(manner)}
            kind[6], kind[7] = names, values
            kinds[#kinds + 1] = kind
        end
        n = n + 1
        values[n] = entry[1]
        for k = 2, #fields, 2 do
            n = n + 1
            values[n] = fields[k]
        end
    end
    return kinds
end

local takes_suspect

-- Whether this consumer was given a suspect a moment ago, of any of its streams, and still has it.
local function has_suspect()
    for _, stream in ipairs(KEYS) do
        local held = redis.pcall('XPENDING', stream, group, '-', '+', HELD_MAX, consumer)
        for _, entry in ipairs(failed(held) and {} or held) do
            if entry[4] > SUSPECT_AFTER and entry[3] < ALONE_MS then return true end
        end
    end
    return false
end

local function take_returned(position)
    local stream = KEYS[position]
    local wanted = budget - #delivered
    local waiting = redis.pcall('XPENDING', stream, group, '-', '+', wanted + SUSPECTS_PASSED, returned)
    if failed(waiting) or #waiting == 0 then return end
    local ids, deliveries = {}, {}
    for _, entry in ipairs(waiting) do
        local may_go = #ids < wanted
        if may_go and entry[4] >= SUSPECT_AFTER then
            if takes_suspect == nil then takes_suspect = not has_suspect() end
            may_go, takes_suspect = takes_suspect, false
        end
        if may_go then
            ids[#ids + 1] = entry[1]
            deliveries[entry[1]] = entry[4]
        end
    end
    if #ids == 0 then return end
    local entries = redis.pcall('XCLAIM', stream, group, consumer, 0, unpack(ids))
    if failed(entries) then return end
    local waits = #put_back_later
    lapse_with(ids[#ids])
    deliver(position, entries, deliveries)
    looks_at_once = looks_at_once or #put_back_later > waits
end

local function read(position)
    return redis.pcall(
        'XREADGROUP', 'GROUP', group, consumer, 'COUNT', budget - #delivered, 'STREAMS', KEYS[position], '>')
end

local take_new
function take_new(position)
    local reply = read(position)
    if failed(reply) and string.find(reply.err, 'NOGROUP', 1, true) then
        redis.pcall('XGROUP', 'CREATE', KEYS[position], group, '0', 'MKSTREAM')
        reply = read(position)
    end
    if failed(reply) then return reply end
    if not reply then return end
    local waits, entries = #put_back_later, reply[1][2]
    lapse_with(entries[#entries][1])
    deliver(position, entries)
    -- Behind what has lain there may be more of that, which a read that waits would not find out.
    if #put_back_later == waits or #delivered >= budget then return end
    if #put_back_later < PUT_BACK_MAX then return take_new(position) end
    looks_at_once = true
end

local LOOKS_AT_ONCE = -2
local slots = tonumber(ARGV[9])
local next_due_ms = -1
local function comes_back_in(due_ms)
    if due_ms and (next_due_ms < 0 or due_ms < next_due_ms) then next_due_ms = due_ms end
end

local homes = {}
for i = 10, #ARGV do
    local namespace, queue = string.match(ARGV[i], '^(.-)' .. SCHEDULED .. '(.+)$')
    local home = {namespace = namespace, queue = queue}
    homes[#homes + 1] = home
    if slots > 0 then
        local room = room_of_home(home)
        safely(room, note_worker, consumer, slots)
    end
    comes_back_in(make_due(ARGV[i], home))
end

local function least_score(set) return tonumber(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]) end

-- Tells the consumer when something may move in the room, unless another one comes back for that: then it comes some time
-- behind that one, which may be lost or have no slot free by then. A consumer without a slot comes when it has one.
local BEHIND_MS, BEHIND_MAX_MS = 50, 1000
local function tell_when(room, changes_ms)
    redis.call('ZREM', room.told, consumer)
    if #delivered >= budget then return end
    local now = now_ms()
    redis.call('ZREMRANGEBYSCORE', room.told, '-inf', string.format('%.0f', now - BEHIND_MS))
    local first_ms, at_ms = least_score(room.told), math.max(changes_ms, now)
    if first_ms and first_ms <= at_ms then
        at_ms = at_ms + math.min(BEHIND_MS * redis.call('ZCARD', room.told), BEHIND_MAX_MS)
    end
    redis.call('ZADD', room.told, string.format('%.0f', at_ms), consumer)
    redis.call('PEXPIRE', room.told, LOOK_AGAIN_LATE_MS + 2 * BEHIND_MAX_MS)
    comes_back_in(at_ms - now)
end

-- Lets in from a queue's waiting room what this consumer can take, and says when to look again.
local function let_in(room)
    local moved, is_all = look_and_admit(room, budget - #delivered)
    if moved > 0 then
        for position, stream in ipairs(KEYS) do
            if #delivered < budget and room.lengths[stream] ~= 0 then take_new(position) end
        end
    end
    local changes_ms = least_score(room.openings)
    local ends_ms = least_score(room.ends)
    if ends_ms and (not changes_ms or ends_ms < changes_ms) then changes_ms = ends_ms end
    if changes_ms then tell_when(room, changes_ms) end
    if not is_all then comes_back_in(0) end
end

local refusal
for position = 1, #KEYS do
    if #delivered < budget then take_returned(position) end
    if #delivered < budget then refusal = take_new(position) or refusal end
end
put_all_back()
for _, home in ipairs(homes) do
    local namespace, queue = home.namespace, home.queue
    if #delivered < budget and redis.call('EXISTS', namespace .. ROOM_CALLS .. queue, namespace .. ROOM_PLAIN .. queue) > 0 then
        local room = room_of_home(home)
        safely(room, let_in)
    end
end
if refusal and #delivered == 0 then return refusal end
look_for_marks()
looks_at_once = looks_at_once or (#delivered == budget and budget < wanted)
return {looks_at_once and LOOKS_AT_ONCE or next_due_ms, told()}
