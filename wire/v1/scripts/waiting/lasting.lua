-- How long what is known of gates is kept, and what is told of those who pass them. Begins other scripts.

-- How long what a gate remembers outlives its need. A rate that nothing is known of begins with one start, not with a
-- burst, so that losing it errs on the side of the limit.
local REMEMBERED_MS = 24 * 3600 * 1000
local ARRIVAL_KEPT_MS = 60000
-- What a call leaves that holds no place: a second message of it, sent as the reply to the first was lost, comes soon.
local PASSED_MS = 60000
-- How many holders of places are many: those that are lost are looked for then.
local MANY_HOLDERS = 1000

-- What a message that passes gates tells of itself (waits_as, gates.lua): the same of all that one run sends on at once, but
-- for when they passed and their deadlines.
local function as_who(tenant, run) return ' ' .. #tenant .. ' ' .. tenant .. run end
local function as_waiting(passed_ms, ends_ms, who) return string.format('%.0f %.0f', passed_ms, ends_ms) .. who end
