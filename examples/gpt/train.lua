-- SPDX-License-Identifier: Apache-2.0
-- Train a small byte GPT with its parameters and optimizer state in a store.
--
--     gyre run train.lua --text book.txt --store run1 --steps 1000
--
-- Run it again after any interruption and it goes on where the last commit
-- stands: data, schedule and validation are functions of the options and the
-- step number alone, so the result has the same bits as an uninterrupted run.
--
--     step k:   forward    waits for each parameter as the layer needs it,
--                          while the store still updates the ones behind
--               backward   hands each gradient to the store when it is final
--               update     the store takes the norm, clips, and starts; we go
--                          on with step k + 1
--
--     mpirun -n 4 gyre run train.lua --schedule ring --backend mpi ...
--
-- Each sequence's attention is then shared by four processes; all else each of
-- them computes for itself.  Process 0 alone has a store: its new parameters go
-- to the others when the layers need them.
--
-- The rest is in modules beside this script: train_options.lua (the command
-- line), train_store.lua (what the store is made of), train_resume.lua (where
-- a run stands), train_report.lua (what came of it) and fail.lua (how it ends).

package.path = (arg[0]:match("^.*/") or "./") .. "?.lua;" .. package.path

local gyre = require "gyre"
local gpt = require "gpt"
local fail = require "fail"
local opt = require "train_options"
local stores = require "train_store"
local resume = require "train_resume"
local report = require "train_report"

local check, try = fail.check, fail.try
local VALIDATION_BATCHES = 8

-- ---- what it takes: a dry run ends here ------------------------------------

local shape = { layers = opt.layers, heads = opt.heads, width = opt.width,
                context = opt.context, seed = opt.seed,
                threads = opt.threads, schedule = opt.schedule,
                ranks = opt.ranks, exact = opt.exact,
                backend = opt.backend, timeout = opt.timeout }

local planned, model_bytes = try(gpt.plan, shape, opt.batch)
local text <close> = try(gpt.text, opt.text)
gyre.plan_run { title = "train.lua", store = stores.specification(planned),
                path = opt.store, steps = opt.steps,
                memory = { ["gpt: weights, gradients, work"] = model_bytes,
                           ["text, mapped"] = #text } }

-- ---- open ------------------------------------------------------------------

-- First, since its tables are gone again before the model comes.
local ngram = opt.ngram and try(text.ngram, text, 3) or nil
local model <close> = try(gpt.new, shape)
fail.tell(model)
local process = model:process()
gyre.quiet = gyre.quiet or process > 0
local parameters = model:parameters()
local state = resume.start()
local store <close>, made = stores.open(parameters, process)
if not made then
    stores.compare(store, parameters)
    resume.read(state, store)
end
for i, p in ipairs(parameters) do
    check(store:bind(i, p.data)) -- where updated values go
end
check(store:pull())
resume.agree(state, model, text)

-- ---- one step --------------------------------------------------------------

local tally = report.start()
local tokens_per_step = opt.batch * opt.context * opt.micro_batches
local updating -- the round of the step before, while its chunks update
local skipping -- whether that round was skipped
local stale = true -- parameters of processes without a store

-- Called when the model is about to read parameter i.
local function on_parameter(i)
    if updating then
        check(updating:wait(i))
    end
    if stale then
        try(model.share, model, i)
        stale = i < #parameters
    end
end

-- The commit of a round: afterwards every parameter is new.
local function finish()
    if not updating then
        return
    end
    local round = updating
    updating = nil
    state.step = state.step + 1
    state.tokens = state.tokens + tokens_per_step
    if not skipping then
        state.applied = state.applied + 1
    end
    tally:round(check(round:finish(gyre.json(state))))
end

-- Warm up in a line, then half a cosine down to min_lr.
local function rate(step)
    if step < opt.warmup then
        return opt.lr * (step + 1) / opt.warmup
    end
    local part = (step - opt.warmup) / math.max(1, opt.steps - opt.warmup)
    return opt.min_lr + 0.5 * (opt.lr - opt.min_lr) *
               (1 + math.cos(math.pi * part))
end

local function begin()
    finish()
    return check(store:begin {
        groups = stores.groups(rate(state.applied)), clip = opt.clip,
        micro_batches = opt.micro_batches, denominator = opt.micro_batches,
        early = opt.early, late_clip = opt.late_clip })
end

local function batch_at(step, micro)
    return text:batch("train", opt.batch, opt.context, opt.seed,
                      step * opt.micro_batches + micro)
end

local function train(step)
    local round
    local sum = 0
    for micro = 0, opt.micro_batches - 1 do
        local is_last = micro == opt.micro_batches - 1
        local function on_gradient(i)
            round = round or begin()
            check(round:gradient(i, parameters[i].grad))
            if opt.early and is_last then
                check(round:release(i))
            end
        end
        sum = sum + try(model.forward_backward, model, batch_at(step, micro),
                        opt.batch, opt.context, 1.0, on_gradient,
                        on_parameter)
        if not is_last then
            check(round:next())
        end
    end
    skipping = check(round:update()).skipped
    updating, stale = round, true
    return sum / opt.micro_batches
end

-- ---- validation ------------------------------------------------------------

local function loss_of(tokens, rows)
    return try(model.loss, model, tokens, rows, opt.context, on_parameter)
end

local function validate()
    local sum = 0
    for k = 0, VALIDATION_BATCHES - 1 do
        sum = sum + loss_of(text:batch("valid", opt.batch, opt.context,
                                       opt.seed, k), opt.batch)
    end
    return sum / VALIDATION_BATCHES
end

-- The whole validation part, as the n-gram model reads it.
local function validate_all()
    local sum, windows, k = 0, 0, 0
    while true do
        local tokens, rows = text:windows("valid", opt.batch, opt.context, k)
        if not tokens then
            return sum / windows
        end
        sum = sum + rows * loss_of(tokens, rows)
        windows, k = windows + rows, k + 1
    end
end

-- ---- the run ---------------------------------------------------------------

local function gather(word)
    return try(model.gather, model, word)
end

-- Whether the store may still be written to; the last step is whole then.
local function within_budget()
    if opt.wear_budget == 0 then
        return true
    end
    finish()
    local wear = process == 0 and check(store:wear())
    local good = process > 0 or
        wear.written + wear.bytes_per_round <= opt.wear_budget
    return gather(tostring(good))[1] == "true" -- what process 0 says
end

local first = state.step
local last = math.min(opt.steps, opt.stop_at or opt.steps)
local bar <close> = gyre.progress { label = "train", total = last,
                                    unit = "steps" }
local busy = 0 -- seconds in training steps
local worn = false
bar:update(first)
for step = first, last - 1 do
    if not within_budget() then
        worn = true
        finish()
        bar:print(("the wear budget of %d bytes ends this run after step %d")
                  :format(opt.wear_budget, step))
        break
    end
    local start = gyre.clock()
    local loss = train(step)
    local at_check = opt.validate_every > 0 and
                         (step + 1) % opt.validate_every == 0
    if at_check or step == last - 1 then
        finish()
    end
    busy = busy + gyre.clock() - start
    tally:step(loss)
    if at_check then
        local valid = validate()
        state.best = math.min(state.best or valid, valid)
        bar:print(("step %d  loss %.4f  validation %.4f"):format(step + 1,
                                                                 loss, valid))
    end
    bar:update(step + 1, ("loss %.3f"):format(loss))
end
bar:finish()
if tally.final and not tally.final.committed then
    check(store:commit(gyre.json(state)))
end
local valid = validate_all()

-- Whether the losses have the same bits everywhere.
local alike = true
local losses = gather(string.pack("<dd", tally.loss or 0, valid))
for _, other in ipairs(losses) do
    alike = alike and other == losses[1]
end
if process == 0 then
    report.print(tally:sum {
        store = store, model = model, state = state, first = first,
        worn = worn, seconds = busy, tokens_per_step = tokens_per_step,
        valid = valid, ngram = ngram, alike = alike })
end
