-- `owe`: stores webhooks and makes them due. Their keys stand in `keys` from one place on, the id and the sealed text of
-- each in `arguments` from another. One that is there already stays as it is: who writes an entry again owes no more by it.

-- What is of another type is nobody's of ours: it goes, and the command is carried out.
local function sure(...)
    local reply = redis.pcall(...)
    if type(reply) == 'table' and reply.err then
        redis.call('UNLINK', (select(2, ...)))
        return redis.call(...)
    end
    return reply
end

local function owe(due, now, keep_ms, keys, first_key, arguments, first_argument)
    for at = first_key, #keys do
        local place = first_argument + 2 * (at - first_key)
        if sure('HSETNX', keys[at], 'm', arguments[place + 1]) == 1 then
            redis.call('PEXPIRE', keys[at], keep_ms)
            sure('ZADD', due, 'NX', now, arguments[place])
        end
    end
end
