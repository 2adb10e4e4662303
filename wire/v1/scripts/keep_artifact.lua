-- Keeps an artifact for a run, or for as long again. What is there already is not sent again: it is asked for first.
--
-- KEYS  its content, the run's grant, the tenant's runs that have it, the run's artifacts
-- ARGV  its id, the run, the key that says that the run was deleted, the sealed grant, for how long (s), and its content,
--       unless it is to be there already
-- Reply 1 kept, 0 its content is not there and was not sent, -1 the run was deleted

local content, grant, runs, artifacts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- A key that is only read stands in ARGV: of those in KEYS, the server asks that its user may write them.
local artifact, run, deleted, sealed, keep_s, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if redis.call('EXISTS', deleted) == 1 then return -1 end
if redis.call('EXPIRE', content, keep_s) == 0 then
    if not data then return 0 end
    redis.call('SET', content, data, 'EX', keep_s)
end
redis.call('SET', grant, sealed, 'EX', keep_s)
local now_s = tonumber(redis.call('TIME')[1])
-- Runs whose grants have ended would otherwise stay for as long as anybody is given the same.
redis.call('ZREMRANGEBYSCORE', runs, '-inf', now_s)
redis.call('ZADD', runs, now_s + keep_s, run)
redis.call('EXPIRE', runs, keep_s)
redis.call('SADD', artifacts, artifact)
redis.call('EXPIRE', artifacts, keep_s)
return 1
