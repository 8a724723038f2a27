-- SPDX-License-Identifier: Apache-2.0
-- SGD with momentum (Sutskever et al., 2013), as PyTorch writes it, or with an
-- exponential mean from zero; one element, in doubles.
-- state: p, momentum_buffer; t counts from 1.
local function step(state, g, hyper, t)
    local mu = hyper.momentum

    if hyper.maximize then
        g = -g
    end
    g = g + hyper.weight_decay * state.p

    if hyper.averaging == "ema" then
        state.momentum_buffer = mu * state.momentum_buffer + (1 - mu) * g
        g = state.momentum_buffer
    elseif mu ~= 0 then
        if t == 1 then
            state.momentum_buffer = g
        else
            state.momentum_buffer = mu * state.momentum_buffer
                + (1 - hyper.dampening) * g
        end
        if hyper.nesterov then
            g = g + mu * state.momentum_buffer
        else
            g = state.momentum_buffer
        end
    end
    state.p = state.p - hyper.lr * g
end

return step
