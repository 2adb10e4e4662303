-- The gates of a call as its message tells them: an array of gates, each {kind, tool, value, amount, burst}, in JSON.
-- Begins other scripts.

local function gate_name(gate) return gate[1] .. '|' .. gate[2] .. '|' .. gate[3] end

local function decoded(text)
    local readable, value = pcall(cjson.decode, text)
    return readable and type(value) == 'table' and value or {}
end

local function positive(value)
    return type(value) == 'number' and value > 0 and value < math.huge and value or nil
end

-- The gates in the text that a message carries; none where it is not such a text.
local gates_by_text = {}
local function gates_in(text)
    if text and gates_by_text[text] then return gates_by_text[text] end
    local gates = text and text ~= '' and decoded(text) or {}
    for i = #gates, 1, -1 do
        local gate = gates[i]
        if not (type(gate) == 'table' and (gate[1] == 'rate' or gate[1] == 'concurrency') and type(gate[2]) == 'string'
            and type(gate[3]) == 'string' and positive(gate[4]) and type(gate[5]) == 'number') then
            table.remove(gates, i)
        end
    end
    if text then gates_by_text[text] = gates end
    return gates
end
