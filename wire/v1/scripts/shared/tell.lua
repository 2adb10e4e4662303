-- What every script that ends a call does in the end: stores the result, and tells whoever waits for it.
-- The one place that decides who that is. Begins other scripts; needs the constants that `toolfleet.replies` names.

-- The orchestrator that sent the call or, when its lease is gone, the one that owns the run by now.
local is_there = {}
local function mailbox(replies, call)
    if is_there[replies] then return replies end
    local namespace, orchestrator = string.match(replies, '^(.-)' .. REPLIES .. '(.*)$')
    if is_there[replies] == nil then
        is_there[replies] = redis.call('EXISTS', namespace .. ORCHESTRATOR .. orchestrator) == 1
        if is_there[replies] then return replies end
    end
    local run = string.match(call, '^(.*)%.%d+%.%d+$')
    local owner = run and redis.call('HGET', namespace .. HEAD .. run, 'owner')
    if not owner then return replies end
    return namespace .. REPLIES .. owner
end

-- Tells whoever waits for a call; `field` says what it is: 'r' its result, 's' that it goes on elsewhere.
local function tell(replies, call, field, sealed)
    local box = mailbox(replies, call)
    redis.call('XADD', box, 'MAXLEN', '~', REPLIES_MAX, '*', 'c', call, field, sealed)
    if box ~= replies then redis.call('EXPIRE', box, REPLIES_TTL_S) end
end

-- Stores the result of a call. 1, or 2 when it had a result: the first one counts.
local function keep(results, call, sealed)
    return redis.call('SET', results .. call, sealed, 'NX', 'PX', RESULT_TTL_MS) and 1 or 2
end

-- The same, and tells of it.
local function store(results, call, sealed, replies)
    local kept = keep(results, call, sealed)
    if kept == 1 then tell(replies, call, 'r', sealed) end
    return kept
end

-- What a sealed result says of itself: `returned`, or the kind of its failure. Ours begin with it, behind the MAC; a worker
-- in another language may write its fields in another order.
local MAC_CHARS = 64
local function outcome_of(sealed)
    if string.find(sealed, '{"type":"returned"', MAC_CHARS + 1, true) == MAC_CHARS + 1 then return 'returned' end
    local kind = string.match(sealed, '^%x+{"type":"failed","kind":"([a-z_]+)"')
    if kind then return kind end
    local is_read, record = pcall(cjson.decode, string.match(sealed, '{.*') or '')
    if not is_read or type(record) ~= 'table' then return 'unreadable' end
    return tostring(record.type == 'failed' and record.kind or record.type)
end

-- Adds calls that have ended to the fleet's figures, by outcome. Here and nowhere else: a worker that counted for itself
-- would take what it knows with it.
local function count(results, outcomes)
    local settled = string.sub(results, 1, -1 - #RESULTS) .. SETTLED
    for outcome, calls in pairs(outcomes) do redis.pcall('HINCRBY', settled, outcome, calls) end
end

-- As `store`, and counts a call that has ended so.
local function settle(results, call, sealed, replies)
    local stored = store(results, call, sealed, replies)
    if stored == 1 then count(results, {[outcome_of(sealed)] = 1}) end
    return stored
end
