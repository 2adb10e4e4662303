-- Gives an orchestrator's runs up for adoption, some at a time. Begins with clock.lua.
--
-- KEYS  the orchestrators, its lease, its runs
-- ARGV  its id, whether it gives them up itself (1; 0: its lease must have lapsed), how many, prefix of heads,
--       prefix of unowned runs, how long to keep a set of those (ms)
-- Reply how many it may still have

local orchestrators, lease, owned = unpack(KEYS)
local id, is_given_up, at_most, heads, unowned, ttl_ms = unpack(ARGV)

local ends_ms = tonumber(redis.call('ZSCORE', orchestrators, id) or '0')
if is_given_up == '0' and ends_ms >= now_ms() then return 0 end
redis.call('DEL', lease)
for _, run in ipairs(redis.call('SPOP', owned, at_most)) do
    local model, owner = unpack(redis.call('HMGET', heads .. run, 'model', 'owner'))
    -- In a store that came back older it may be another's by now.
    if model and (not owner or owner == id) then
        redis.call('HDEL', heads .. run, 'owner')
        redis.call('SADD', unowned .. model, run)
        redis.call('PEXPIRE', unowned .. model, ttl_ms)
    end
end
local left = redis.call('SCARD', owned)
if left == 0 then redis.call('ZREM', orchestrators, id) end
return left
