-- SPDX-License-Identifier: Apache-2.0
-- 8-bit floats with a power-of-two scale per block.  set: format, block.
return function(x, set)
    local mantissa, low, most, top = 3, -6, 448, 119
    if set.format == "e5m2" then
        mantissa, low, most, top = 2, -14, 57344, 112
    end
    local kept = {}
    for from = 1, #x, set.block do
        local to = math.min(from + set.block - 1, #x)
        local largest, scale = 0.0, 2.0 ^ -126
        for i = from, to do
            largest = math.max(largest, math.abs(x[i]))
        end
        while largest > most * scale and scale < 2.0 ^ top do
            scale = scale * 2
        end
        for i = from, to do
            local y = math.min(math.abs(x[i]) / scale, most)
            local exponent = y == 0 and low
                or math.max(low, math.floor(math.log(y, 2)))
            local unit = 2.0 ^ (exponent - mantissa)
            local n = y / unit
            local down = math.floor(n)
            local rest = n - down
            if rest > 0.5 or (rest == 0.5 and down % 2 == 1) then
                down = down + 1
            end
            kept[i] = (x[i] < 0 and -1 or 1) * down * unit * scale
        end
    end
    return kept
end
