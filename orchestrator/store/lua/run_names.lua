-- Finds the runs whose ids begin with some text. Those below a run that is found, whose ids have its own before theirs, are
-- passed over with one step.
--
-- KEYS  the names of runs
-- ARGV  the text, whose runs (anybody's with a second argument of 1), the tenant, how many at most
-- Reply their ids, in their order

local names = KEYS[1]
local text, is_anybodys, tenant, at_most = ARGV[1], ARGV[2] == '1', ARGV[3], tonumber(ARGV[4])
local STEPS = 500

local found, above, from = {}, nil, '[' .. text
for _ = 1, STEPS do
    local each = redis.call('ZRANGEBYLEX', names, from, '[' .. text .. '\255', 'LIMIT', 0, 1)[1]
    if not each or #found == at_most then break end
    local cut = string.find(each, '\0', 1, true)
    local run = cut and string.sub(each, 1, cut - 1) or each
    if above and string.sub(run, 1, #above + 1) == above .. '.' then
        from = '[' .. above .. '/'  -- the character that follows a dot
    else
        from, above = '(' .. each, run
        if is_anybodys or tenant == (cut and string.sub(each, cut + 1) or '') then found[#found + 1] = run end
    end
end
return found
