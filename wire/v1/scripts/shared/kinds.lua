-- Where in ARGV of publish.lua each kind of limits begins, and the first message. Begins other scripts.
local kinds, first = {}, 2
for kind = 1, ARGV[1] do
    kinds[kind] = first
    first = first + 2 + 5 * ARGV[first + 1]
end
