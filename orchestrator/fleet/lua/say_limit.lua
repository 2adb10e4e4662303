-- Writes down what somebody says of a limit or of a tenant's share, beside what was said of it before, with an entry that
-- tells who, when and what. Begins with clock.lua.
--
-- KEYS  what is said (hash of JSON), the entries, how often anything was said
-- ARGV  field, what is new as JSON (null takes a word back), for how many ms a pause lasts (-1: none is said), who, what was
--       done, how many entries are kept, 1 to take all of it back
-- Reply {what was said before or an empty text, what is said now or an empty text}

local said, entries, times = KEYS[1], KEYS[2], KEYS[3]
local field, changes, pause_ms = ARGV[1], cjson.decode(ARGV[2]), tonumber(ARGV[3])
local by, action, kept, takes_back = ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1'
local NEVER_MS = 9999999999999

local before = redis.call('HGET', said, field) or ''
local readable, now_said = pcall(cjson.decode, before)
if takes_back or not readable or type(now_said) ~= 'table' then now_said = {} end
for name, value in pairs(changes) do
    if value == cjson.null then now_said[name] = nil else now_said[name] = value end
end
if pause_ms >= 0 then
    now_said.paused_until_ms = pause_ms == 0 and NEVER_MS or math.min(now_ms() + pause_ms, NEVER_MS)
end
now_said.by, now_said.at_unix_s = nil, nil
local after = ''
if next(now_said) then
    now_said.by, now_said.at_unix_s = by, math.floor(now_ms() / 1000)
    after = cjson.encode(now_said)
    redis.call('HSET', said, field, after)
else
    redis.call('HDEL', said, field)
end
redis.call('INCR', times)
redis.call('XADD', entries, 'MAXLEN', '~', kept, '*', 'by', by, 'action', action, 'of', field, 'before', before, 'after', after)
return {before, after}
