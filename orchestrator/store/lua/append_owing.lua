-- Stores an entry as append.lua does, here the function `append`, and if it is stored the webhooks that are owed for it:
-- both or neither, so that no crash can come between. Begins with what append.lua begins with, and owe.lua.
--
-- KEYS  those of append.lua, the webhooks that are due, then one for each webhook
-- ARGV  how many keys and how many arguments append.lua has, how long a webhook is kept (ms), those arguments, then the id
--       and what is to be sent, sealed, of each webhook
-- Reply that of append.lua

local keys_count, arguments_count, keep_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local keys, arguments = {}, {}
for at = 1, keys_count do keys[at] = KEYS[at] end
for at = 1, arguments_count do arguments[at] = ARGV[at + 3] end

local reply = append(keys, arguments)
if not reply then return false end
owe(KEYS[keys_count + 1], now_ms(), keep_ms, KEYS, keys_count + 2, ARGV, arguments_count + 4)
return reply
