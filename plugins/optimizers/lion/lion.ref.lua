-- SPDX-License-Identifier: Apache-2.0
-- Lion (Chen et al., 2023, algorithm 2), one element, in doubles.
-- state: p, exp_avg; t counts from 1 and does not matter.
local function step(state, g, hyper)
    if hyper.maximize then
        g = -g
    end
    local c = hyper.beta1 * state.exp_avg + (1 - hyper.beta1) * g
    local sign = c > 0 and 1 or c < 0 and -1 or 0

    state.p = state.p - hyper.lr * (sign + hyper.weight_decay * state.p)
    state.exp_avg = hyper.beta2 * state.exp_avg + (1 - hyper.beta2) * g
end

return step
