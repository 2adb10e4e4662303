-- Adds messages to their streams, or to their queue's waiting room: all or none, as nothing is added when the first one
-- is refused (out of memory). A lane that nobody reads any more is passed by, for the queue itself.
--
-- ARGV  for each message: readers of its lane and the lane's stream (or two empty strings), its stream, body, headers,
--       properties, the call's id, the seconds its claim lasts (empty for a call that need not be claimed), its tenant,
--       its run, its gates (JSON, or empty), and when nobody wants it any more (ms, 0: never)
-- Reply how many messages

local crowded = {}

local function may_pass(room, message, call)
    if waiting_in(room) > 0 or free_slots(room) < 1 then return nil end
    local gates, text = gates_of(room, message.tenant, message.gates)
    if not first_shut(room.namespace, gates, now_ms(), call) then return gates, text end
end

local function publish(message)
    local room, level = room_of(message.stream)
    local is_bound = message.gates ~= '' or gate_of_tenant(room, message.tenant) ~= nil
    if not is_bound and (message.readers ~= '' or has_room(room, message.stream)) then
        send(room, message, '')
        return
    end
    local gates, text
    if is_bound then gates, text = may_pass(room, message, message.call) end
    if gates then
        pass(room.namespace, gates, now_ms(), message.call, send(room, message, text))
    else
        let_wait(room, level, message)
        crowded[room] = true
    end
end

for i = 1, #ARGV, 12 do
    local fields = {'b', ARGV[i + 3], 'h', ARGV[i + 4], 'p', ARGV[i + 5], 'id', ARGV[i + 6]}
    if ARGV[i + 7] ~= '' then
        fields[9], fields[10] = 'claim', ARGV[i + 7]
    end
    publish({
        readers = ARGV[i], lane = ARGV[i + 1], stream = ARGV[i + 2], fields = fields, call = ARGV[i + 6],
        tenant = ARGV[i + 8], run = ARGV[i + 9], gates = ARGV[i + 10], ends_ms = tonumber(ARGV[i + 11]),
    })
end
for room in pairs(crowded) do
    if free_slots(room) > 0 then admit(room, free_slots(room)) end
end
return #ARGV / 12
