-- Sets many keys that there are not yet, in one command: each costs the server half of what a SET of its own does. Begins other
-- scripts.
--
-- `words` are keys and values in turn, of no key twice. Whether all of them are set; if not, none is, and each is to be set
-- alone: there may be one of them, or the server may not have the command (Valkey has it since 9.1, Redis since 8.4) or refuse it.
local WORDS_MAX = 4000
local function set_all(words, unit, lasts)
    local n = #words
    if n < 4 or n > WORDS_MAX then return false end
    words[n + 1], words[n + 2], words[n + 3] = 'NX', unit, lasts
    return redis.pcall('MSETEX', n / 2, unpack(words)) == 1
end
