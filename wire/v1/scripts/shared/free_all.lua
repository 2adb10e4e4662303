-- Gives up the places of calls that a script settles, and lets in who waited for them. Begins other scripts, behind the functions
-- `freeing` and `waiting_room`, which have what is in free_together.lua and in room.lua.

-- Frees the places of those settlements that begin at these positions. Most often nobody waits for one, and the room is not
-- made: what waits for workers these let in themselves. Where it cannot be read, it mends itself.
local function free_all(stream, settled)
    local is_done, freed, are_waited_for = pcall(freeing(), stream, settled)
    if is_done and not are_waited_for then return end
    local room_of, safely, free_again, bring_all_back, admit_free = waiting_room()
    local room = room_of(stream)
    if is_done then safely(room, bring_all_back, freed) else safely(room, free_again, stream, settled) end
    safely(room, admit_free, #settled)
end
