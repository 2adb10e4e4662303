-- Frees a worker's name, unless another one has it by now.
--
-- KEYS  the name
-- ARGV  who holds it

local name, holder = KEYS[1], ARGV[1]

if redis.call('GET', name) == holder then redis.call('DEL', name) end
