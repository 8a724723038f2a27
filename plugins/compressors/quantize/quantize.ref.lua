-- SPDX-License-Identifier: Apache-2.0
-- Block-wise quantisation of the list x.  set: bits, map, rounding, block;
-- draw(i) is uniform in [0, 1) for stochastic rounding.
local function levels_of(set)
    local levels = {0.0}
    local bits = set.bits - 1
    local last = 2 ^ bits - 1
    for m = 1, last do
        if set.map == "linear" then
            levels[m + 1] = m / last
        else -- e leading zeros, a one, then k in f bits
            local f = math.floor(math.log(m, 2) + 1e-9)
            local e, k = bits - 1 - f, m - 2 ^ f
            levels[m + 1] = 4 ^ -e * (1 + 3 * (2 * k + 1) / 2 ^ (f + 1)) / 4
        end
    end
    levels[#levels] = 1.0
    return levels
end

return function(x, set, draw)
    local levels, kept = levels_of(set), {}
    for from = 1, #x, set.block do
        local to = math.min(from + set.block - 1, #x)
        local most = 0.0
        for i = from, to do
            most = math.max(most, math.abs(x[i]))
        end
        for i = from, to do
            local y = most > 0 and math.abs(x[i]) / most or 0.0
            local m = 1
            while m + 1 < #levels and levels[m + 1] <= y do
                m = m + 1
            end
            local low, high = levels[m], levels[m + 1]
            local up
            if set.rounding == "stochastic" then
                up = draw(i) < (y - low) / (high - low)
            else
                up = y - low >= high - y
            end
            local sign = x[i] < 0 and -1 or 1
            kept[i] = sign * (up and high or low) * most
        end
    end
    return kept
end
