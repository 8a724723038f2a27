-- SPDX-License-Identifier: Apache-2.0
-- Scaled sign (Karimireddy et al., 2019).  set: block.
return function(x, set)
    local kept = {}
    for from = 1, #x, set.block do
        local to = math.min(from + set.block - 1, #x)
        local sum = 0.0
        for i = from, to do
            sum = sum + math.abs(x[i])
        end
        for i = from, to do
            kept[i] = (x[i] < 0 and -1 or 1) * sum / (to - from + 1)
        end
    end
    return kept
end
