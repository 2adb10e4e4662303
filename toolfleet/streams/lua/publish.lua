-- Adds messages to their streams, all or none: nothing is added when the first one is refused (out of memory).
--
-- ARGV  for each message: stream, body, headers, properties, and for a call that must be claimed its id and the
--       seconds its claim lasts, else two empty strings
for i = 1, #ARGV, 6 do
    if ARGV[i + 4] ~= '' then
        redis.call('XADD', ARGV[i], '*', 'b', ARGV[i + 1], 'h', ARGV[i + 2], 'p', ARGV[i + 3],
            'id', ARGV[i + 4], 'claim', ARGV[i + 5])
    else
        redis.call('XADD', ARGV[i], '*', 'b', ARGV[i + 1], 'h', ARGV[i + 2], 'p', ARGV[i + 3])
    end
end
return #ARGV / 6
