-- As publish, where some messages are for a lane: one that nobody reads any more is passed by, for the queue itself.
--
-- ARGV  for each message: readers of its lane and the lane's stream (or two empty strings), then as in publish
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

for i = 1, #ARGV, 8 do
    local stream = ARGV[i + 2]
    if ARGV[i] ~= '' and redis.call('ZCOUNT', ARGV[i], now_ms, '+inf') > 0 then stream = ARGV[i + 1] end
    local entry = {'b', ARGV[i + 3], 'h', ARGV[i + 4], 'p', ARGV[i + 5], 'id', ARGV[i + 6]}
    if ARGV[i + 7] ~= '' then
        entry[9], entry[10] = 'claim', ARGV[i + 7]
    end
    redis.call('XADD', stream, '*', unpack(entry))
end
return #ARGV / 8
