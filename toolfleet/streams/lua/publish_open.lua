-- Adds messages of which some have limits to their streams, where every gate has places for all that come to it: what
-- publish.lua does when nobody waits and workers can take all of them. ARGV is that of publish.lua. Each gate is asked and
-- passed once for the whole batch. Begins behind clock.lua and terms.lua.
--
-- Reply whether it has; else nothing is sent, and publish_in_turn.lua finds who may go.

local now = now_ms()
local groups, group_of = {}, {}

-- Puts the calls together that have the same gates. False where two messages are of one call, or a text tells of no gate.
local function are_grouped()
    local seen = {}
    for i = 1, #ARGV, 12 do
        local stream, call, text = ARGV[i + 2], ARGV[i + 6], ARGV[i + 10]
        if text ~= '' then
            local namespace = string.match(stream, '^(.-)' .. QUEUE)
            local name = namespace .. ' ' .. text
            local group = groups[name]
            if not group then
                group = {namespace = namespace, gates = gates_in(text), calls = {}, placed = {}, ends_ms = 0}
                groups[name], groups[#groups + 1] = group, group
            end
            if seen[call] or #group.gates == 0 then return false end
            seen[call], group_of[i] = true, group
            group.calls[#group.calls + 1] = call
            group.ends_ms = math.max(group.ends_ms, tonumber(ARGV[i + 11]))
        end
    end
    return true
end

-- Whether so many more may pass a gate now, beside those of other groups. Where holders are very many it is time again to
-- look for some that are gone, which is not done here.
local function has_places(namespace, gate, calls)
    local terms = terms_of(namespace, gate)
    if terms.paused_ms > now then return false end
    terms.wanted = (terms.wanted or 0) + calls
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
            if not has_places(group.namespace, gate, #group.calls) then return false end
        end
        for _, is_new in ipairs(are_new(group.namespace, group.gates, group.calls)) do
            if not is_new then return false end
        end
    end
    return true
end

local is_readable, may_pass = pcall(may_all_pass)
if not (is_readable and may_pass) then return false end
local passed = string.format('%.0f', now)
for i = 1, #ARGV, 12 do
    local group, id = group_of[i], nil
    local fields = {'b', ARGV[i + 3], 'h', ARGV[i + 4], 'p', ARGV[i + 5], 'id', ARGV[i + 6]}
    if ARGV[i + 7] ~= '' then
        fields[9], fields[10] = 'claim', ARGV[i + 7]
    end
    if group then
        -- As lines.lua has it.
        local of_gates = {'gates', ARGV[i + 10], 'tenant', ARGV[i + 8], 'run', ARGV[i + 9], 'ends', ARGV[i + 11], 'passed', passed}
        for _, word in ipairs(of_gates) do fields[#fields + 1] = word end
        local placed = group.placed
        placed[#placed + 1] = ARGV[i + 6]
        placed[#placed + 1] = ARGV[i + 2] .. ' ' .. redis.call('XADD', ARGV[i + 2], '*', unpack(fields))
    else
        redis.call('XADD', ARGV[i + 2], '*', unpack(fields))
    end
end
for _, group in ipairs(groups) do
    pass_together(group.namespace, group.gates, now, group.placed, group.ends_ms)
end
return true
