-- SPDX-License-Identifier: Apache-2.0
-- Top-k: what is kept of the list x, the rest 0.  set: ratio, scope, block,
-- values.  With scope "global" x is everything.
local function half(y) -- nearest half, even for ties, saturating
    local exponent = y == 0 and 0 or math.floor(math.log(math.abs(y), 2))
    local unit = 2.0 ^ (math.max(exponent, -14) - 10)
    local n = y / unit
    local down = math.floor(n)
    local rest = n - down
    if rest > 0.5 or (rest == 0.5 and down % 2 == 1) then
        down = down + 1
    end
    return math.max(-65504, math.min(65504, down * unit))
end

local function keep(x, from, to, set, kept)
    local order = {}
    for i = from, to do
        order[#order + 1] = i
    end
    table.sort(order, function(i, j)
        local a, b = math.abs(x[i]), math.abs(x[j])
        return a > b or (a == b and i < j)
    end)
    local k = math.max(1, math.floor(set.ratio * #order))
    local scale = 1.0
    if set.values == "f16" then
        local most = math.abs(x[order[1]])
        while most > 65504 * scale do scale = scale * 2 end
        while scale > 2.0 ^ -125 and most <= 65504 * scale / 2 do
            scale = scale / 2
        end
    end
    for n = 1, k do
        local i = order[n]
        kept[i] = set.values == "f16" and half(x[i] / scale) * scale or x[i]
    end
end

return function(x, set)
    local kept = {}
    local block = set.scope == "global" and #x or set.block
    for i = 1, #x do
        kept[i] = 0.0
    end
    for from = 1, #x, block do
        keep(x, from, math.min(from + block - 1, #x), set, kept)
    end
    return kept
end
