-- Sends home what waits in a lane that nobody reads, and forgets the lane once it is empty. What a consumer still holds
-- there is left to it.
--
-- KEYS  the lane's readers, the lanes of its queue, then for each level the lane's stream and the queue's
-- ARGV  group, returned, lane, a consumer that reads it no more ('': none), how many messages at most, claim prefix
-- Reply how many were sent home

local group, returned, most = ARGV[1], ARGV[2], tonumber(ARGV[5])
if ARGV[4] ~= '' then redis.call('ZREM', KEYS[1], ARGV[4]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms())
if redis.call('ZCARD', KEYS[1]) > 0 then return 0 end

local sent = 0

local function send(stream, home, entry, deliveries)
    local kept = carried(entry[1], entry[2], deliveries)
    local to = redis.call('XADD', home, '*', unpack(kept))
    move_claim(ARGV[6], kept, entry[1], to, home .. ' ' .. to)
    redis.pcall('XACK', stream, group, entry[1])
    redis.call('XDEL', stream, entry[1])
    sent = sent + 1
end

local function send_returned(stream, home)
    for _, held in ipairs(redis.call('XPENDING', stream, group, '-', '+', most - sent, returned)) do
        local entry = redis.call('XRANGE', stream, held[1], held[1])[1]
        if entry then send(stream, home, entry, held[4]) end
    end
end

local function last_delivered(stream)
    for _, fields in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
        local named = {}
        for i = 1, #fields, 2 do named[fields[i]] = fields[i + 1] end
        if named['name'] == group then return named['last-delivered-id'] end
    end
end

local function send_all(stream, home)
    local last = last_delivered(stream)
    if last and sent < most then send_returned(stream, home) end
    if sent >= most then return end
    for _, entry in ipairs(redis.call('XRANGE', stream, '(' .. (last or '0-0'), '+', 'COUNT', most - sent)) do
        send(stream, home, entry, 0)
    end
end

local left = 0
for i = 3, #KEYS, 2 do
    if redis.call('EXISTS', KEYS[i]) == 1 then
        send_all(KEYS[i], KEYS[i + 1])
        left = left + redis.call('XLEN', KEYS[i])
    end
end
if left == 0 then
    for i = 3, #KEYS, 2 do redis.call('DEL', KEYS[i]) end
    redis.call('SREM', KEYS[2], ARGV[3])
end
return sent
