-- A page of the messages in a queue's waiting room. Changes nothing.
--
-- KEYS  the room's messages
-- ARGV  cursor (0: from the beginning), about how many
-- Reply {the next cursor (0: that was all), the fields of each message}

local cursor, page = unpack(redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2]))
local messages = {}
for i = 2, #page, 2 do
    local readable, parts = pcall(cmsgpack.unpack, page[i])
    if readable and type(parts) == 'table' and type(parts[6]) == 'table' then messages[#messages + 1] = parts[6] end
end
return {cursor, messages}
