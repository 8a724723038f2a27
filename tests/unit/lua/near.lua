-- SPDX-License-Identifier: Apache-2.0
-- What near-storage update adds to scripts: fields of stores and rounds, the
-- ledger, wear.

local gyre = require "gyre"
local tap = require "tap"

local dir = assert(arg[1], "a folder for the stores")
local path = dir .. "/near"

local function spec(more)
    local made = { tensors = { { "w", shape = { 2048 } } },
                   optimizer = { "adamw", lr = 0.5 } }
    for name, value in pairs(more or {}) do
        made[name] = value
    end
    return made
end

local function step(store, options)
    local round = assert(store:begin(options))
    assert(round:gradient("w", gyre.array("f32", 2048):fill(1)))
    assert(round:update())
    return assert(round:finish())
end

do
    local store <close> = assert(gyre.create(path, spec {
        state = { ["*"] = "q8", exp_avg = "bf16", parameter = "bf16" },
        compressor = { "quantize", bits = 4 }, residual = "volatile",
        spill = true, seed = 3, endurance = 1e9,
        compute = { "emulated:read=900M,write=900M" }, link_rate = 1e9 }))
    local info = store:info()
    tap.ok(info.codecs.parameter == "bf16" and info.codecs.exp_avg == "bf16" and
           info.codecs.exp_avg_sq == "q8", "codecs, names before *")
    tap.ok(info.compressor.name == "quantize" and
           info.compressor.residual == "volatile" and
           info.compressor.parameters.bits == 4, "the compressor")
    tap.ok(info.spill and info.exact and info.seed == 3 and info.written > 0,
           "spill, exact, seed, written")
    assert(store:bind("w", gyre.array("bf16", 2048)))
    local report = step(store, { clip = 1, late_clip = true })
    local ledger = report.ledger
    tap.ok(report.norm_compressed > 0.9 and report.norm_compressed < 1.1,
           "the norm after compression")
    tap.equal(ledger.parameter_up, 2 * 2048, "2 bytes of parameters up")
    tap.equal(ledger.gradient_down, 1024 + 8 * 4, "4 bits and scales down")
    tap.equal(ledger.gradient_write, ledger.gradient_down, "and to storage")
    tap.equal(ledger.host_bytes, ledger.parameter_up + ledger.gradient_down,
              "their sum")
    tap.equal(assert(store:ledger()).elements, 2048, "the sum of rounds")
    local wear = assert(store:wear())
    tap.ok(wear.endurance == 1e9 and wear.rounds_left > 0 and
           wear.rounds_left < math.huge and wear.budget == 0, "wear")
end

do
    local store <close> = assert(gyre.open(path, { placement = "host",
                                                   gradients = "memory",
                                                   wear_budget = 1 }))
    tap.fails("budget", "WORN", "a budget that is spent",
              store:begin {})
end

local plan = assert(gyre.plan(spec { compressor = "sign", spill = true }))
tap.ok(plan.residual_bytes >= 2 * 4 * 2048 and plan.model.gradient_down > 0 and
       plan.model.elements == 2048, "the plan has residual and model")

tap.raises("there are f32, bf16, bf16%-stochastic, q8", "an unknown codec",
           gyre.create, dir .. "/no", spec { state = "q4" })
tap.raises("committed, volatile, off", "an unknown residual", gyre.create,
           dir .. "/no", spec { compressor = "sign", residual = "kept" })
tap.raises("bits", "a parameter of the compressor", gyre.create, dir .. "/no",
           spec { compressor = { "quantize", bits = 5 } })
tap.raises("near, host", "an unknown placement", gyre.open, path,
           { placement = "far" })
tap.raises("emulated", "a compute that is none", gyre.open, path,
           { compute = "abacus" })
tap.done()
