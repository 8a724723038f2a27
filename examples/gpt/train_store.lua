-- SPDX-License-Identifier: Apache-2.0
-- The store of train.lua: what it is made of, the values that each round gets,
-- and what stands for it in processes that have none.

local gyre = require "gyre"
local opt = require "train_options"
local fail = require "fail"

local check = fail.check
local stores = {}

-- ---- the specification -----------------------------------------------------

local plugin = check(gyre.plugin(opt.optimizer))
local known = {}
for _, parameter in ipairs(plugin.parameters) do
    known[parameter.name] = true
end

-- Settings that this optimizer has, of those that the options give.
local function settings(values)
    local taken = {}
    for name, value in pairs(values) do
        if known[name] then
            taken[name] = value
        end
    end
    return taken
end

local optimizer = settings { beta2 = opt.beta2, lr = opt.lr,
                             weight_decay = opt.weight_decay }
optimizer[1] = opt.optimizer

-- "topk,ratio=0.01" -> { "topk", ratio = 0.01 }
local function compressor(text)
    if not text then
        return nil
    end
    local name, rest = text:match("^([^,]+)(.*)$")
    local parsed = { name }
    for key, value in rest:gmatch(",([^=,]+)=([^,]+)") do
        if value == "true" or value == "false" then
            parsed[key] = value == "true"
        else
            parsed[key] = tonumber(value) or value
        end
    end
    return parsed
end

-- Group 1 decays, group 2 (biases, norms) does not.
function stores.specification(parameters)
    local tensors = {}
    for i, p in ipairs(parameters) do
        tensors[i] = { p.name, shape = p.shape, data = p.data,
                       group = p.decay and 1 or 2 }
    end
    return { tensors = tensors, optimizer = optimizer, devices = opt.devices,
             chunk_elements = opt.chunk_elements, io = opt.io,
             commit_every = opt.commit_every,
             state = { ["*"] = opt.state, parameter = opt.master },
             compressor = compressor(opt.compress), residual = opt.residual,
             spill = opt.spill, seed = opt.seed, placement = opt.placement,
             compute = opt.compute, link_rate = opt.link_rate,
             endurance = opt.endurance, wear_budget = opt.wear_budget }
end

-- The values of both groups in a round with this learning rate.
function stores.groups(lr)
    return { settings { lr = lr, weight_decay = opt.weight_decay },
             settings { lr = lr, weight_decay = 0 } }
end

-- ---- opening ---------------------------------------------------------------

local function nothing()
    return true
end

local no_round = { gradient = nothing, release = nothing, next = nothing,
                   wait = nothing,
                   update = function() return { skipped = false } end,
                   finish = function() return { committed = true } end }
local no_store = setmetatable(
    { begin = function() return no_round end, bind = nothing, pull = nothing },
    { __close = nothing })

-- The store in process 0, its stand-in elsewhere; and whether it is new.
function stores.open(parameters, process)
    if process > 0 then
        return no_store, true
    end
    local specification = stores.specification(parameters)
    local store, made = gyre.open_or_create(opt.store, specification)
    check(store, made)
    if made and opt.from then
        store:close()
        check(gyre.import(opt.store, opt.from))
        store = check(gyre.open_or_create(opt.store, specification))
    end
    return store, made
end

-- Whether an old store is of this model; else the end.
function stores.compare(store, parameters)
    local tensors = check(store:tensors())
    for i, p in ipairs(parameters) do
        local t = tensors[i]
        if not t or t.name ~= p.name or t.elements ~= p.n then
            local seen = t and ("%s of %d elements"):format(t.name, t.elements)
            fail.now(("the store %s holds another model: its tensor %d is " ..
                      "%s, not %s of %d elements"):format(opt.store, i,
                      seen or "missing", p.name, p.n))
        end
    end
end

return stores
