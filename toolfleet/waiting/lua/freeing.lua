-- How calls give up their places, and who comes back for them. Begins other scripts, behind moving.lua.

local function give_up(room, gate, call, place)
    local holders = room.namespace .. HOLDERS .. gate_name(gate)
    return redis.call('HGET', holders, call) == place and redis.call('HDEL', holders, call) == 1
end

-- Frees the places that a call has for its message at `place`, and brings back who waits for them. What another message
-- of the call has is left to that.
local function free(room, text, call, place)
    for _, gate in ipairs(gates_in(text)) do
        local name = gate_name(gate)
        if gate[1] == 'concurrency' and give_up(room, gate, call, place) and waiting_in(room) > 0 then
            if redis.call('EXISTS', aside_at(room, name)) == 1 then reopen(room, name) end
            local tenant = gate[2] == '@' .. room.queue and string.match(gate[3], '^tenant=(.*)$')
            for _, level in ipairs(tenant and LEVELS or {}) do
                if redis.call('ZSCORE', turns_of(room, level), tenant) then take_next_turn(room, level, tenant) end
            end
        end
    end
end

-- Does something with a room where a failure must not keep the script from what else it does. It is counted.
local function safely(room, work, ...)
    if not pcall(work, room, ...) then
        redis.pcall('HINCRBY', room.namespace .. COUNTERS, 'waiting_room_failures', 1)
    end
end

-- Frees the places of a call that has gone on as a job, and lets in who waits for them. What stands in the job's hash may
-- be anything.
local function free_places_of_job(job, call)
    local said = redis.pcall('HMGET', job, 'gates', 'place')
    if said.err then return end
    local text, place = unpack(said)
    local room = text and place and room_of(string.match(place, '^(.*) %S*$') or '')
    if not room then return end
    safely(room, free, text, call, place)
    safely(room, admit, 1)
end
