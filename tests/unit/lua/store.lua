-- SPDX-License-Identifier: Apache-2.0
-- Stores and rounds: the way through, then every way to misuse them.

local gyre = require "gyre"
local tap = require "tap"

local dir = assert(arg[1], "a folder for the stores")
local path = dir .. "/store"
local spec = {
    tensors = {
        { "w", shape = { 3, 2 },
          data = gyre.array("f32", { 1, 2, 3, 4, 5, 6 }) },
        { name = "b", shape = { 3 }, group = 2 },
    },
    optimizer = { "sgd", lr = 0.5 },
}

-- ---- the way through ----------------------------------------------------

local w = gyre.array("f32", 6)
do
    local store <close> = assert(gyre.create(path, spec))
    tap.ok(tostring(store):find("gyre.store"), "tostring of a store")
    local info = store:info()
    tap.ok(info.tensors == 2 and info.elements == 9 and info.groups == 2 and
           info.step == 0 and info.whole and info.device_paths[1], "info")
    local list = store:tensors()
    tap.ok(#list == 2 and list[1].name == "w" and list[1].shape[2] == 2 and
           list[2].group == 2 and list[2].elements == 3, "tensors")
    tap.ok(store:tensor("b").name == "b" and store:tensor(1).name == "w",
           "one tensor by name and by number")
    assert(store:bind("w", w))
    assert(store:pull())
    tap.ok(w[1] == 1 and w[6] == 6, "pull fills what is bound")
    local before = store:digest()
    tap.equal(#before, 32, "digest")

    local round = assert(store:begin { groups = { { lr = 1 }, { lr = 1 } } })
    tap.ok(tostring(round):find("open"), "tostring of a round")
    assert(round:gradient("w", gyre.array("f32", { 1, 1, 1, 1 }), 3))
    assert(round:gradient(1, gyre.array("f64", { 1, 1, 9 }), 1, 2))
    assert(round:gradient("b", gyre.array("f32", { 0, 0, 0 })))
    local report = assert(round:update())
    tap.ok(math.abs(report.norm - 6 ^ 0.5) < 1e-12, "the norm at update")
    tap.ok(tostring(round):find("updating"), "tostring while it updates")
    assert(round:wait("w"))
    report = assert(round:finish("blob\0text"))
    tap.ok(report.step == 1 and report.committed and not report.skipped and
           math.type(report.read_bytes) == "integer", "the report")
    tap.ok(w[1] == 0 and w[6] == 5, "updated values arrive")
    tap.ok(tostring(round):find("over"), "tostring of a round that is over")
    tap.equal(store:blob(), "blob\0text", "the blob")
    tap.ok(store:digest() ~= before, "the digest changes")
    tap.ok(store:read("w", nil, 2, 3)[1] == 1, "read a part")
    tap.ok(store:read("w").dtype == "f32" and
           store:read("w", "parameter", 1, 6, "f64")[6] == 5,
           "read whole, as f64")
end
do
    local store <close>, made = assert(gyre.open_or_create(path, spec))
    tap.equal(made, false, "open_or_create opens what is there")
    tap.equal(store:info().step, 1, "the step is kept")
    tap.equal(store:blob(), "blob\0text", "the blob is kept")
end
tap.fails("", "EXISTS", "create where one is", gyre.create(path, spec))
do
    local store <close>, made =
        assert(gyre.open_or_create(dir .. "/other", spec))
    tap.equal(made, true, "open_or_create creates what is not")
end
tap.fails(".", "NOT_FOUND", "open where none is", gyre.open(dir .. "/none"))

-- ---- closing ------------------------------------------------------------

local store = assert(gyre.open(path))
local round = assert(store:begin())
store:close()
store:close()
tap.ok(tostring(store):find("closed"), "closed twice")
tap.raises("closed", "info of a closed store", store.info, store)
tap.raises("over", "a round of a closed store", round.update, round)
round:close()
round, store = nil, nil
collectgarbage()
tap.ok(true, "collected after closing")

store = assert(gyre.open(path))
do
    local r <close> = assert(store:begin())
end
do
    local r <close> = assert(store:begin())
    tap.ok(true, "__close gives an unfinished round up")
    tap.raises("open", "two rounds at once", store.begin, store)
    tap.raises(".", "digest in a round", store.digest, store)
    tap.raises(".", "bind in a round", store.bind, store, "w", nil)
end
tap.ok(store:bind("w", w) and store:bind("w", w) and store:bind("w", nil),
       "bind again and unbind")
store:bind("w", w)
w = nil
collectgarbage()
assert(store:pull())
tap.ok(true, "the store keeps what is bound alive")

-- ---- misuse -------------------------------------------------------------

local g6, g3 = gyre.array("f32", 6), gyre.array("f32", 3)
round = assert(store:begin())
tap.raises("store.lua:%d+:", "finish without gradients names the line",
           function()
               local report = round:finish()
               return report
           end)
assert(round:gradient("w", g6))
tap.raises(".", "a gradient twice", round.gradient, round, "w", g6)
tap.raises("no", "a tensor that is not there", round.gradient, round, "v", g6)
tap.raises("tensor 3 of a store with 2", "a number that is not there",
           round.gradient, round, 3, g6)
tap.raises("count from 1", "element 0", round.gradient, round, "b", g3, 0)
tap.raises("than the array holds", "more than there is", round.gradient,
           round, "b", g3, 1, 4)
tap.raises(".", "past the tensor", round.gradient, round, "b", g3, 2)
tap.raises("gyre.array", "a table as gradient", round.gradient, round, "b",
           { 1, 2, 3 })
assert(round:absent("b"))
assert(round:finish())
tap.raises("this round is over", "finish twice", round.finish, round)
tap.raises("this round is over", "gradient after the end", round.gradient,
           round, "b", g3)
tap.raises("has no field 'learning_rate'", "a round's unknown field",
           store.begin, store, { learning_rate = 1 })
tap.raises("1 groups given, the store has 2", "too few groups", store.begin,
           store, { groups = { {} } })
tap.raises("clip.*number expected", "a field of the wrong type", store.begin,
           store, { clip = "1" })
tap.raises("tensor 'x' has no shape", "a tensor without a shape", gyre.create,
           dir .. "/x", { tensors = { { "x" } } })
tap.raises("6 elements, its data 3", "data of another length", gyre.create,
           dir .. "/x", { tensors = { { "x", shape = { 6 }, data = g3 } } })
tap.raises("a store has no field 'tensor'", "an unknown field of a store",
           gyre.create, dir .. "/x", { tensor = {} })
tap.raises("tensors.*missing", "no tensors", gyre.create, dir .. "/x", {})
tap.raises("6 elements, the array 3", "bind of another length", store.bind,
           store, "w", g3)
tap.raises("no state slot", "an unknown slot", store.read, store, "w", "zz")
tap.raises("end", "read past the end", store.read, store, "w", nil, 1, 7)
tap.raises("gyre.store", "not a store", store.info, {})
store:close()

-- ---- measuring ----------------------------------------------------------

do
    local short = { bytes = 1 << 20, seconds = 0.05 }
    local speeds = assert(gyre.weigh({ dir, dir }, short))
    tap.ok(#speeds == 2 and speeds[2].device == dir and speeds[1].rate > 0 and
           math.abs(speeds[1].weight + speeds[2].weight - 2) < 1e-3,
           "weigh two folders")
    tap.fails("nowhere", "NOT_FOUND", "weigh nothing",
              gyre.weigh({ dir .. "/nowhere" }, short))
    tap.raises("no field", "an unknown option of weigh", gyre.weigh, { dir },
               { byte = 1 })
    tap.raises("seconds", "a negative time", gyre.weigh, { dir },
               { seconds = -1 })
    local measured <close> = assert(gyre.create(dir .. "/measured", {
        tensors = spec.tensors, devices = { dir, dir }, weights = "measured" }))
    tap.equal(measured:info().devices, 2, "create with measured weights")
    tap.raises("measured", "another word for weights", gyre.create, dir .. "/x",
               { tensors = spec.tensors, devices = { dir },
                 weights = "guessed" })
end

-- ---- other devices, between two rounds ----------------------------------

do
    local at = dir .. "/moving"
    local moving <close> = assert(gyre.create(at, spec))
    local values = gyre.array("f32", 6)
    local function step()
        local round = assert(moving:begin())
        assert(round:gradient("w", gyre.array("f32", { 1, 1, 1, 1, 1, 1 })))
        assert(round:gradient("b", gyre.array("f32", { 1, 1, 1 })))
        return assert(round:finish())
    end
    assert(moving:bind("w", values))
    step()
    local digest = moving:digest()
    tap.equal(moving:reshard { devices = { at, dir } }, true,
              "reshard of an open store")
    tap.equal(moving:info().devices, 2, "it has two devices")
    tap.equal(moving:digest(), digest, "and the same parameters")
    tap.equal(step().step, 2, "it goes on")
    tap.ok(values[6] == 5, "into the bound array")
    tap.fails("/nowhere", "NOT_FOUND", "reshard onto nothing",
              moving:reshard { devices = { "/nowhere" } })
    tap.equal(moving:info().step, 2, "which leaves it open")
    tap.raises("has no field", "a field that it has not", moving.reshard, moving,
               { device = 2 })
    local round <close> = assert(moving:begin())
    tap.raises("a round of store", "reshard in a round", moving.reshard,
               moving, { devices = 2 })
end

-- ---- contexts -----------------------------------------------------------

do
    local context <close> = assert(gyre.context { instruction_set = "scalar" })
    tap.equal(context:instruction_set(), "scalar", "a context of its own")
    tap.ok(context:memory() >= 0, "its memory")
    store = assert(context:open(path))
end
tap.ok(store:info().tensors == 2, "a store outlives its context's closing")
store:close()
tap.raises("mmx", "an unknown instruction set", gyre.context,
           { instruction_set = "mmx" })
local context = gyre.context()
context:close()
context:close()
tap.raises("closed", "a closed context", context.open, context, path)
tap.done()
