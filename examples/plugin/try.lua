-- SPDX-License-Identifier: Apache-2.0
-- Fit y = 3 x - 1 with any optimizer plugin, its state in a store.
--
--     gyre run --plugin-path . try.lua --optimizer signum
local gyre = require "gyre"

local opt = gyre.options {
    usage = "Fit a line with an optimizer plugin.",
    { "optimizer", default = "signum" },
    { "store", type = "path", default = "line.store" },
    { "steps", type = "integer", default = 400, min = 1 },
    { "lr", type = "number", default = 0.01, min = 0 },
}

local p = gyre.array("f32", 2)
local g = gyre.array("f32", 2)
local store <close> = assert(gyre.open_or_create(opt.store, {
    tensors = { { "line", shape = { 2 } } },
    optimizer = { opt.optimizer, lr = opt.lr },
}))
store:bind("line", p)
assert(store:pull())

local first = store:info().step
for step = first + 1, first + opt.steps do
    g[1], g[2] = 0, 0
    for x = -1, 1, 0.5 do
        local miss = p[1] * x + p[2] - (3 * x - 1)
        g[1] = g[1] + miss * x / 5
        g[2] = g[2] + miss / 5
    end
    local round <close> = assert(store:begin())
    assert(round:gradient("line", g))
    assert(round:finish())
    if step % 100 == 0 then
        print(("step %d  a %.3f  b %.3f"):format(step, p[1], p[2]))
    end
end
