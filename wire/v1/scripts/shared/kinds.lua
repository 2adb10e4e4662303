-- Where in ARGV of publish.lua each kind of limits begins, and the first row of messages. Begins other scripts.
local kinds, first = {}, 2
for kind = 1, ARGV[1] do
    kinds[kind] = first
    first = first + 2 + 5 * ARGV[first + 1]
end

-- A row says what all of its messages have in common, how many they are, and then of each the rest.
local OF_ROW, OF_MESSAGE = 7, 6
local function end_of(row) return row + OF_ROW - 1 + OF_MESSAGE * ARGV[row + 6] end
