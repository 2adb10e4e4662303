-- Keeps a worker's announcement for a while, unless another tool is served under the name of one of its tools.
-- A variant is "digest-of-the-spec source". Same source and another spec is a release; both differing is a clash.
--
-- KEYS  workers, this worker, then the variants of each of its tools
-- ARGV  ttl (s), worker's name, announcement, then each tool's variant, in the order of the keys
-- Reply {-1, ''}, or for the first clash {position of the tool, the variant that is there}: then nothing was written

local workers, worker = KEYS[1], KEYS[2]
local ttl_s, name, announcement = ARGV[1], ARGV[2], ARGV[3]

local now = tonumber(redis.call('TIME')[1])
local function apart(variant) return string.match(variant, '^(%S+) (.*)$') end
for i = 3, #KEYS do
  local spec, source = apart(ARGV[i + 1])
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now - ttl_s)
  for _, known in ipairs(redis.call('ZRANGE', KEYS[i], 0, -1)) do
    local its_spec, its_source = apart(known)
    if spec ~= its_spec and source ~= its_source then return {i - 3, known} end
  end
end
for i = 3, #KEYS do
  redis.call('ZADD', KEYS[i], now, ARGV[i + 1])
  redis.call('EXPIRE', KEYS[i], ttl_s)
end
redis.call('SET', worker, announcement, 'EX', ttl_s)
redis.call('ZADD', workers, now, name)
redis.call('ZREMRANGEBYSCORE', workers, '-inf', now - ttl_s)
redis.call('EXPIRE', workers, ttl_s)
return {-1, ''}
