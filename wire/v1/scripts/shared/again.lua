-- Messages that wait in a room again, after they have been in a stream. Begins other scripts, behind room.lua and carry.lua.

-- The message waits first of its own.
local function let_wait_again(room, level, fields, gates)
    local _, ends_ms, tenant, run = waits_as(fields)
    let_wait_first(room, level, {
        call = field_of(fields, 'id'), tenant = tenant, run = run, gates = gates, ends_ms = ends_ms, readers = '', lane = '',
        stream = stream_of(room, level), fields = without_gates(fields)})
end

-- Whether a call may start now by the rates of its gates, of which it takes a start each: what it took as it went into its
-- stream was of another moment.
local function passes_rates(stream, id, fields)
    local room, call = room_of(stream), field_of(fields, 'id')
    local rates = declared_in(field_of(fields, 'gates'), 'rate')
    if not room or not call or #rates == 0 then return true end
    if first_shut(room.namespace, rates, now_ms(), call) then return false end
    pass(room.namespace, rates, now_ms(), call, stream .. ' ' .. id, 0)
    return true
end

-- Puts a message back into the room, first of its own, with as many deliveries as count. It gives up its places.
local function put_back(stream, group, id, fields, deliveries, claim_prefix)
    local room, level = room_of(stream)
    local gates, call = field_of(fields, 'gates'), field_of(fields, 'id')
    local _, declared = declared_in(gates)
    local kept = carried(id, fields, deliveries)
    for _, word in ipairs({'held_as', '@' .. id, 'late', '1'}) do kept[#kept + 1] = word end
    let_wait_again(room, level, kept, declared)
    -- Its claim alone: of its places there is nothing to move, as they are given up.
    move_claim(claim_prefix, without_gates(kept), id, '@' .. id, '')
    redis.call('XACK', stream, group, id)
    redis.call('XDEL', stream, id)
    safely(room, free, gates, call, stream .. ' ' .. id)
end

-- Lets a message that is due wait for the limits that it is to meet anew (`meets`), or for a place of its tenant if that
-- has so many only. Whether it does.
local function waits_for_tenant(stream, fields)
    local meets, room, level = field_of(fields, 'meets') or '', room_of(stream)
    if not (room and field_of(fields, 'waits_as') and field_of(fields, 'id')) or field_of(fields, 'gates') then return false end
    local _, _, tenant = waits_as(fields)
    if meets == '' and not gate_of_tenant(room, tenant) then return false end
    let_wait_again(room, level, fields, meets)
    return true
end
