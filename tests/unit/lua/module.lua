-- SPDX-License-Identifier: Apache-2.0
-- Progress, options without arguments, plans, declared memory, traces.

local gyre = require "gyre"
local tap = require "tap"

-- ---- plans --------------------------------------------------------------

local spec = { tensors = { { "w", shape = { 1000, 100 } } },
               optimizer = { "adamw", amsgrad = true } }
local plan = gyre.plan(spec)
tap.equal(math.type(plan.total_bytes), "integer", "a plan has a total")
tap.ok(plan.disk_bytes >= 2 * 4 * 4 * 100000,
       "two versions of four values for an element of AMSGrad")
tap.ok(plan.read_bytes_per_step >= 16 * 100000, "a step reads all of them")
tap.raises("no parameter", "a plan checks the optimizer", gyre.plan,
           { tensors = spec.tensors, optimizer = { "adamw", nope = 1 } })
tap.fails("nope", "NOT_FOUND", "and finds it",
          gyre.plan { tensors = spec.tensors, optimizer = "nope" })
tap.equal(gyre.plan_run { store = spec }, nil,
          "plan_run does nothing in a real run")
tap.raises("plan_run has no field 'stor'", "but checks its fields",
           gyre.plan_run, { stor = spec })
tap.raises("below 0", "memory below zero", gyre.memory, "x", -1)

-- ---- optimizers ---------------------------------------------------------

local o = { "adamw", lr = 0.5 }
tap.equal(gyre.optimizer(o), o, "an optimizer is its own table")
tap.raises("it has: lr", "an unknown parameter lists the known",
           gyre.optimizer, { "adamw", learning = 1 })
tap.raises("betas?1?", "a value out of range", gyre.optimizer,
           { "adamw", beta1 = 2 })
tap.raises("lr = 1e%-3", "parameters without names", gyre.optimizer,
           { "adamw", 0.1 })
tap.fails("adamw", "NOT_FOUND", "an unknown optimizer lists the known",
          gyre.optimizer { "adamx" })
local found = gyre.plugin("sgd")
tap.ok(found.kind == "gyre.optimizer/1" and found.parameters[1].name == "lr",
       "a plugin's table")

-- ---- trace and progress -------------------------------------------------

do
    local context <close> = gyre.context { trace_records = 100 }
    do
        local span <close> = context:span("outer", "compute")
        context:span("inner", "storage read"):close(512)
    end
    local spans, dropped = context:trace()
    tap.ok(#spans == 2 and dropped == 0 and spans[1].name == "outer" and
           spans[2].bytes == 512 and spans[2].category == "storage read",
           "spans of the script")
    tap.ok(context:write_trace(arg[1] .. "/trace.json"), "written as JSON")
    local file = assert(io.open(arg[1] .. "/trace.json"))
    tap.ok(gyre.json_decode(file:read("a")), "which is JSON")
    file:close()
    tap.raises("compute", "an unknown category", context.span, context, "x",
               "sleep")
end
local bar = gyre.progress { label = "work", total = 3, unit = "steps" }
bar:update(1)
bar:add()
bar:finish()
bar:close()
bar:update(3)
tap.ok(tostring(bar):find("work"), "a progress bar that is over")
tap.raises("number", "progress of nothing", bar.update, bar)

-- ---- memory that runs out -------------------------------------------------

collectgarbage()
local good, text = pcall(gyre.array, "f64", 1 << 44)
tap.ok(not good and tostring(text):find("memory"), "an array beyond memory",
       text)
tap.ok(gyre.version():find("^%d+%.%d+%.%d+$"), "version")
tap.ok(gyre.clock() <= gyre.clock(), "the clock goes forward")
tap.done()
