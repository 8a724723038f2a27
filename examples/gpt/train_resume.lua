-- SPDX-License-Identifier: Apache-2.0
-- Where a run of train.lua stands: kept with each commit as the store's blob,
-- read by the run that goes on, and the same in all processes.

local gyre = require "gyre"
local opt = require "train_options"
local fail = require "fail"

local check, try = fail.check, fail.try
local resume = {}

-- Options that decide the result.
local decisive = { "steps", "seed", "layers", "heads", "width", "context",
                   "batch", "micro_batches", "optimizer", "lr", "min_lr",
                   "warmup", "weight_decay", "beta2", "clip", "state",
                   "master", "compress", "late_clip", "schedule", "exact" }

-- step: rounds, the place in the data; applied: those that were not skipped,
-- the place in the schedule; best, later: the least validation loss.
function resume.start()
    local state = { step = 0, applied = 0, tokens = 0, options = {} }
    for _, name in ipairs(decisive) do
        state.options[name] = opt[name]
    end
    return state
end

local function continue(state, old)
    state.step, state.applied = old.step, old.applied
    state.tokens, state.best = old.tokens, old.best
end

-- Go on where the last commit stands; say which options are others.
function resume.read(state, store)
    local blob = store:blob()
    if not blob then
        return
    end
    local old = check(gyre.json_decode(blob))
    for _, name in ipairs(decisive) do
        local was, is = old.options[name], opt[name]
        if was ~= is then
            fail.say(("warning: --%s was %s, is %s: the result is another " ..
                      "than in one run"):format(name:gsub("_", "-"), was, is))
        end
    end
    continue(state, old)
end

-- All processes go on where process 0 is, when they were started alike: else
-- one would wait for what another does not send.
function resume.agree(state, model, text)
    local same = { text = #text, stop_at = opt.stop_at,
                   validate_every = opt.validate_every,
                   wear_budget = opt.wear_budget }
    for _, name in ipairs(decisive) do
        same[name] = opt[name]
    end
    local all = try(model.gather, model,
                    gyre.json { state = state, same = same })
    local first = check(gyre.json_decode(all[1]))
    for p = 2, #all do
        local other = check(gyre.json_decode(all[p])).same
        for _, options in ipairs { other, first.same } do
            for name in pairs(options) do
                if other[name] ~= first.same[name] then
                    fail.now(("process %d has --%s %s, process 0 %s: start " ..
                              "all with the same options and text"):format(
                              p - 1, (name:gsub("_", "-")), other[name],
                              first.same[name]))
                end
            end
        end
    end
    if model:process() > 0 then
        continue(state, first.state)
    end
end

return resume
