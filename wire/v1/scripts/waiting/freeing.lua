-- How calls give up their places, and who comes back for them. Begins other scripts, behind mending.lua.

local function give_up(room, name, call, place)
    local holders = room.namespace .. HOLDERS .. name
    return redis.call('HGET', holders, call) == place and redis.call('HDEL', holders, call) == 1
end

-- Brings back who waits for a place at a gate that has one now. A tenant's own has the queue for its tool.
local function bring_back(room, name)
    if redis.call('EXISTS', aside_at(room, name)) == 1 then reopen(room, name) end
    local its_own = 'concurrency|@' .. room.queue .. '|tenant='
    local tenant = string.sub(name, 1, #its_own) == its_own and string.sub(name, #its_own + 1)
    for _, level in ipairs(tenant and LEVELS or {}) do
        if redis.call('ZSCORE', turns_of(room, level), tenant) then take_next_turn(room, level, tenant) end
    end
end

local function bring_all_back(room, names)
    for _, name in ipairs(has_waiting(room) and names or {}) do bring_back(room, name) end
end

-- The same, behind what time has changed.
local function look_and_admit_free(room, most)
    most = math.min(most, free_slots(room))
    if most > 0 then look_and_admit(room, most) end
end

-- Frees the places that a call has for its message at `place`, and brings back who waits for them. What another message
-- of the call has is left to that.
local function free(room, text, call, place)
    local freed = {}
    for _, gate in ipairs(gates_in(text)) do
        local name = gate_name(gate)
        if gate[1] == 'concurrency' and give_up(room, name, call, place) then freed[#freed + 1] = name end
    end
    -- Behind all of them: who looks at a gate for lost holders would else find this one, and nobody would be brought back.
    bring_all_back(room, freed)
end

-- Lets in up to `most`, and no more than workers can start now: what goes into a stream has used up its rate.
local function admit_free(room, most)
    if not has_waiting(room) then return end
    most = math.min(most, free_slots(room))
    if most > 0 then admit(room, most) end
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
    safely(room, admit_free, 1)
end
