-- Claims the calls among what a read that waited has just given a consumer. It is sent with that read and stands behind it, so
-- it runs as soon as the read has an answer, and the consumer need not ask once more.
--
-- KEYS  the streams of the read, the likeliest first: where one has news, no further one is looked at
-- ARGV  group, consumer, prefix of claims, prefix of results, how many messages at most, then for each stream the entry behind
--       which news of it is
-- Reply {position of the stream, {{entry, 1, or 0 if its call has a result, or -1 if another message has its call}…}}, of those
--       that are claimed; nothing where there is no news, or more than so many, which whoever reads them claims later
--
-- Nothing may fail: what is not claimed here is claimed before it starts.

local group, consumer, claim_prefix, result_prefix, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local function field(fields, wanted)
    for i = 1, #fields, 2 do
        if fields[i] == wanted then return fields[i + 1] end
    end
end

local function claim(stream, id)
    local entry = redis.pcall('XRANGE', stream, id, id)[1]
    local call, ttl_s = entry and field(entry[2], 'id'), entry and field(entry[2], 'claim')
    if not call or not ttl_s then return nil end
    local holder = redis.pcall('SET', claim_prefix .. call, id, 'NX', 'GET', 'EX', ttl_s)
    if type(holder) == 'table' then return nil end
    if holder and holder ~= id then return -1 end
    return redis.pcall('EXISTS', result_prefix .. call) == 0 and 1 or 0
end

for position, stream in ipairs(KEYS) do
    local news = redis.pcall('XPENDING', stream, group, '(' .. ARGV[5 + position], '+', most + 1, consumer)
    if not news.err and #news > 0 then
        if #news > most then return {} end
        local claimed = {}
        for _, pending in ipairs(news) do
            local how = claim(stream, pending[1])
            if how then claimed[#claimed + 1] = {pending[1], how} end
        end
        return {position, claimed}
    end
end
return {}
