-- Adds messages to their streams, all or none: nothing is added when the first one is refused (out of memory).
--
-- ARGV  for each message: stream, body, headers, properties, the call's id, and the seconds its claim lasts or an empty
--       string for a call that need not be claimed
for i = 1, #ARGV, 6 do
    if ARGV[i + 5] ~= '' then
        redis.call('XADD', ARGV[i], '*', 'b', ARGV[i + 1], 'h', ARGV[i + 2], 'p', ARGV[i + 3],
            'id', ARGV[i + 4], 'claim', ARGV[i + 5])
    else
        redis.call('XADD', ARGV[i], '*', 'b', ARGV[i + 1], 'h', ARGV[i + 2], 'p', ARGV[i + 3], 'id', ARGV[i + 4])
    end
end
return #ARGV / 6
