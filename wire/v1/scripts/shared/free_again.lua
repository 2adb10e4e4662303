-- What free_together.lua does, one call after the other, for a room in which that has failed. Goes with room.lua.
local function free_again(room, stream, settled)
    local freed = {}
    for _, at in ipairs(settled) do
        for i = at + 4, at + 3 + ARGV[at + 3] do
            if give_up(room, ARGV[i], ARGV[at + 1], stream .. ' ' .. ARGV[at]) then freed[#freed + 1] = ARGV[i] end
        end
    end
    bring_all_back(room, freed)
end
