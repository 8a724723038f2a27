-- SPDX-License-Identifier: Apache-2.0
-- AdaGrad (Duchi, Hazan and Singer, 2011), diagonal form; one element, in
-- doubles.  state: p, sum; t counts from 1.
local function step(state, g, hyper, t)
    if hyper.maximize then
        g = -g
    end
    local plain = g
    g = g + hyper.weight_decay * state.p
    state.sum = state.sum + g ^ 2
    if hyper.decay_in == "sum_only" then
        g = plain
    end
    local lr = hyper.lr / (1 + (t - 1) * hyper.lr_decay)
    state.p = state.p - lr * g / (math.sqrt(state.sum) + hyper.eps)
end

return step
