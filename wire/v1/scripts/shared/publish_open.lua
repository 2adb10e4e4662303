-- Adds messages of which some have limits to their streams, where every gate has places for all that come to it: what
-- publish_many.lua does when nobody waits and workers can take all of them. ARGV is that of publish.lua. Each gate is asked and
-- passed once for the whole batch. Begins behind clock.lua, kinds.lua and terms.lua.
--
-- Reply whether it has; else nothing is sent, and publish_in_turn.lua finds who may go.

local now = now_ms()
local namespace, groups, group_of = string.match(ARGV[rows[1] + 2], '^(.-)' .. QUEUE), {}, {}

-- The gates that stand in ARGV from there on.
local function gates_from(position)
    local gates = {}
    for i = position + 2, position + 1 + 5 * ARGV[position + 1], 5 do
        gates[#gates + 1] = {ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])}
    end
    return gates
end

-- Puts the calls together that have the same gates. False where two messages are of one call.
local function are_grouped()
    for number, position in ipairs(kinds) do
        groups[number] = {gates = gates_from(position), text = ARGV[position], calls = {}, placed = {}, ends_ms = 0}
    end
    for _, row in ipairs(rows) do
        local group = groups[tonumber(ARGV[row + 5])]
        for i = row + OF_ROW, group and end_of(row) or 0, OF_MESSAGE do
            local call = ARGV[i + 2]
            if group_of[call] then return false end
            group_of[call] = group
            group.calls[#group.calls + 1] = call
            group.ends_ms = math.max(group.ends_ms, tonumber(ARGV[i + 5]))
        end
    end
    return true
end

-- Whether so many more may pass a gate now, beside those of other groups. Where holders are very many it is time again to
-- look for some that are gone, which is not done here.
local function has_places(gate, calls)
    local terms = terms_of(namespace, gate)
    if terms.paused_ms > now then return false end
    terms.wanted = terms.wanted + calls
    if gate[1] == 'rate' then return starts_at(terms, now) >= terms.wanted end
    terms.held = terms.held or redis.call('HLEN', terms.holders)
    if terms.held >= MANY_HOLDERS then
        local checked_ms = number(redis.call('HGET', terms.state, 'checked')) or 0
        if math.abs(now - checked_ms) >= LOOK_AGAIN_MS / 2 then return false end
    end
    return terms.held + terms.wanted <= terms.at_once
end

local function may_all_pass()
    if not are_grouped() then return false end
    for _, group in ipairs(groups) do
        for _, gate in ipairs(group.gates) do
            if not has_places(gate, #group.calls) then return false end
        end
        if known_among(namespace, group.gates, group.calls) then return false end
    end
    return true
end

-- Adds a message of a row, with more fields than each has.
local function add(row, i, ...)
    return redis.call('XADD', ARGV[row + 2], '*', 'b', ARGV[i], 'h', ARGV[i + 1], 'p', ARGV[row + 3], 'id', ARGV[i + 2], ...)
end

-- The same of one with limits, for its group. The fields that lines.lua adds, in their order.
local function add_bound(group, row, i)
    local claim, id = ARGV[i + 3], nil
    local waits = as_waiting(now, ARGV[i + 5], as_who(ARGV[row + 4], ARGV[i + 4]))
    if claim == '' then
        id = add(row, i, 'gates', group.text, 'waits_as', waits)
    else
        id = add(row, i, 'claim', claim, 'gates', group.text, 'waits_as', waits)
    end
    local placed = group.placed
    placed[#placed + 1] = ARGV[i + 2]
    placed[#placed + 1] = ARGV[row + 2] .. ' ' .. id
end

local is_readable, may_pass = pcall(may_all_pass)
if not (is_readable and may_pass) then return false end
for _, row in ipairs(rows) do
    local group = groups[tonumber(ARGV[row + 5])]
    for i = row + OF_ROW, end_of(row), OF_MESSAGE do
        if group then
            add_bound(group, row, i)
        elseif ARGV[i + 3] == '' then
            add(row, i)
        else
            add(row, i, 'claim', ARGV[i + 3])
        end
    end
end
for _, group in ipairs(groups) do pass_together(namespace, group.gates, now, group.placed, group.ends_ms) end
return true
