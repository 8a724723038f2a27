-- SPDX-License-Identifier: Apache-2.0
-- The Lua module gpt: arrays, both callbacks and what comes out of them.

local gpt = require "gpt"
local tap = require "tap"

local shape = { layers = 2, heads = 2, width = 8, context = 8, threads = 2 }
local batch, length = 3, 8
local tokens = {}
for i = 1, batch * (length + 1) do
    tokens[i] = i * 37 % 256
end

local model <close> = gpt.new(shape)
local parameters = model:parameters()
local count = #parameters
local wanted = model:loss(tokens, batch, length)

-- ---- arrays ----

local head = parameters[count] -- lm_head
tap.equal(#head.data, head.n, "data has every element")
tap.equal(head.data.dtype, "f32", "and its dtype")
tap.equal(head.grad[head.n + 1], nil, "and nothing past the last")
tap.raises("outside this array", "which cannot be written either",
           function() head.data[0] = 1 end)
local first = head.data[1]
head.data[1] = 100
tap.ok(model:loss(tokens, batch, length) ~= wanted, "data are the weights")
head.data[1] = first
tap.equal(model:loss(tokens, batch, length), wanted, "and back")

local text = gpt.text(arg[0], { split = 0.5 })
local window = text:batch("train", batch, length, 1, 1)
tap.equal(window.dtype, "i32", "tokens are i32")
tap.equal(#window, batch * (length + 1), "batch x (length + 1) of them")
local copy = {}
for i = 1, #window do
    copy[i] = window[i]
end
tap.equal(model:loss(window, batch, length), model:loss(copy, batch, length),
          "an array is as good as a table")
tap.raises("array of i32 or u8", "an array of floats is not",
           model.loss, model, head.data, batch, length)

-- ---- processes: this is the only one ----

tap.equal(model:ranks(), 1, "attention on one rank")
tap.equal(table.concat({ model:process() }, " "), "0 1", "in one process")
tap.equal(table.concat(model:gather("a\0b"), "|"), "a\0b", "which has a text")
model:share(count)
tap.equal(head.data[1], first, "and shares with itself")
tap.raises("no such parameter", "what there is", model.share, model, count + 1)
model:give_up("nobody listens")
do
    local shared <close> = gpt.new { layers = 1, heads = 2, width = 8,
                                     context = 8, schedule = "ring",
                                     ranks = 3 }
    tap.equal(shared:ranks(), 3, "attention on three ranks")
    tap.equal(table.concat({ shared:process() }, " "), "0 1", "all in here")
    local tokens = {}
    for i = 1, 9 do
        tokens[i] = i
    end
    tap.ok(shared:loss(tokens, 1, 8, function(i) shared:share(i) end) > 0,
           "a callback may share")
    shared:give_up("enough")
    tap.raises("rank 0 gave up: enough", "nothing goes on after giving up",
               shared.loss, shared, tokens, 1, 8)
    tap.raises("timeout is %-1", "a timeout that is none", gpt.new,
               { schedule = "ring", timeout = -1 })
end
do
    local shared
    pcall(function()
        local closed <close> = gpt.new { layers = 1, heads = 2, width = 8,
                                         context = 8, schedule = "ring" }
        shared = closed
        error("out of ideas")
    end)
    tap.raises("the model is closed", "an error closes", shared.ranks, shared)
end

-- ---- parameters are awaited, gradients announced ----

local function take_away()
    local kept = {}
    for i, p in ipairs(parameters) do
        kept[i] = {}
        for k = 1, p.n do
            kept[i][k] = p.data[k]
            p.data[k] = 0 / 0
        end
    end
    return kept
end

-- A callback that puts back what was taken and notes the order.
local function bring_back(kept, order)
    return function(i)
        order[#order + 1] = i
        for k = 1, parameters[i].n do
            parameters[i].data[k] = kept[i][k]
        end
    end
end

local ascending = {}
for i = 1, count do
    ascending[i] = i
end
ascending = table.concat(ascending, " ")

local order, gradients = {}, {}
local loss = model:forward_backward(tokens, batch, length, 1.0, function(i)
    if #gradients == 0 then
        tap.equal(#order, count, "no gradient before the last parameter")
    end
    gradients[#gradients + 1] = i
end, bring_back(take_away(), order))
tap.equal(loss, wanted, "forward_backward waits for each parameter")
tap.equal(table.concat(order, " "), ascending, "in order")
tap.equal(#gradients, count, "and announces each gradient")

order = {}
loss = model:loss(tokens, batch, length, bring_back(take_away(), order))
tap.equal(loss, wanted, "loss waits, too")
tap.equal(table.concat(order, " "), ascending, "in order")
loss = model:forward_backward(tokens, batch, length, nil, nil,
                              function() order[#order + 1] = 0 end)
tap.equal(loss, wanted, "the callback for gradients may be nil")
tap.equal(#order, 2 * count, "when the other is not")
model:forward_backward(tokens, batch, length)
tap.equal(#order, 2 * count, "callbacks end with their call")

-- ---- errors of callbacks ----

local mark = {}
local function throw()
    error(mark)
end
local function never()
    mark.called = true
end

local calls = 0
local function throw_third()
    calls = calls + 1
    if calls == 3 then
        error(mark)
    end
end

local good, why = pcall(model.forward_backward, model, tokens, batch, length,
                        1.0, never, throw_third)
tap.ok(not good and why == mark, "an error of on_parameter comes out", why)
tap.equal(calls, 3, "and is the last call")
tap.equal(mark.called, nil, "even of the other function")
good, why = pcall(model.forward_backward, model, tokens, batch, length, 1.0,
                  throw, nil)
tap.ok(not good and why == mark, "an error of on_gradient comes out", why)
good, why = pcall(model.loss, model, tokens, batch, length, throw)
tap.ok(not good and why == mark, "and one from loss", why)
tap.raises("busy", "no callback uses the model", model.loss, model, tokens,
           batch, length, function() model:loss(tokens, batch, length) end)
tap.raises("callback", "or closes it", model.loss, model, tokens, batch,
           length, function() model:close() end)
tap.raises("yield", "or yields", coroutine.wrap(function()
    return model:loss(tokens, batch, length, coroutine.yield)
end))
tap.raises("function expected", "a callback is a function", model.loss, model,
           tokens, batch, length, {})
tap.raises("function expected", "both are", model.forward_backward, model,
           tokens, batch, length, 1.0, nil, 1)
tap.raises("tokens%[1%]", "a wrong token is named", model.loss, model, { -1, 0 },
           1, 1, throw)
tap.equal(model:loss(tokens, batch, length), wanted,
          "the model is as good as before")

model:close()
tap.raises("closed", "a closed model says so", model.loss, model, tokens,
           batch, length)
tap.equal(head.data[1], first, "its arrays stay")
parameters = nil
collectgarbage()
tap.equal(head.data[1], first, "as long as one is held")

tap.done()
