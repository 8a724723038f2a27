-- SPDX-License-Identifier: Apache-2.0
-- AdamW (Loshchilov and Hutter, 2019, algorithm 2), one element, in doubles,
-- with the decay multiplied by the learning rate.
-- state: p, exp_avg, exp_avg_sq, max_exp_avg_sq (amsgrad); t counts from 1.
local function step(state, g, hyper, t)
    local b1, b2 = hyper.beta1, hyper.beta2

    if hyper.maximize then
        g = -g
    end
    state.p = (1 - hyper.lr * hyper.weight_decay) * state.p
    state.exp_avg = b1 * state.exp_avg + (1 - b1) * g
    state.exp_avg_sq = b2 * state.exp_avg_sq + (1 - b2) * g ^ 2

    local m, v = state.exp_avg, state.exp_avg_sq
    if hyper.amsgrad then
        state.max_exp_avg_sq = math.max(state.max_exp_avg_sq, v)
        v = state.max_exp_avg_sq
    end
    if hyper.bias_correction then
        m = m / (1 - b1 ^ t)
        v = v / (1 - b2 ^ t)
    end
    state.p = state.p - hyper.lr * m / (math.sqrt(v) + hyper.eps)
end

return step
