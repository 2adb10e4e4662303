-- Where in ARGV of publish.lua each kind of limits begins, and each row of messages; and how many these are. Begins other scripts.
local kinds, at = {}, 2
for kind = 1, ARGV[1] do
    kinds[kind] = at
    at = at + 2 + 5 * ARGV[at + 1]
end

-- A row says what all of its messages have in common, how many they are, and then of each the rest.
local OF_ROW, OF_MESSAGE = 7, 6
local function end_of(row) return row + OF_ROW - 1 + OF_MESSAGE * ARGV[row + 6] end
local rows, total = {}, 0
while at <= #ARGV do
    rows[#rows + 1], total = at, total + ARGV[at + 6]
    at = end_of(at) + 1
end
