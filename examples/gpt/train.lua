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

local gyre = require "gyre"
local gpt = require "gpt"

-- ---- options -------------------------------------------------------------

local opt = gyre.options {
    usage = "Train a byte GPT whose optimizer lives in a store; run again to " ..
        "go on.",
    { "store", type = "path", required = true, help = "folder of the store" },
    { "text", type = "path", default = "/usr/share/common-licenses/GPL-3",
      help = "file to learn" },
    { "steps", type = "integer", default = 200, min = 1, help = "in all" },
    { "stop-at", type = "integer", min = 1, help = "end after this step" },
    { "seed", type = "integer", default = 1, help = "of weights and data" },
    { "layers", type = "integer", default = 4, min = 1 },
    { "heads", type = "integer", default = 4, min = 1 },
    { "width", type = "integer", default = 128, min = 1 },
    { "context", type = "integer", default = 128, min = 1 },
    { "batch", type = "integer", default = 16, min = 1 },
    { "micro-batches", type = "integer", default = 1, min = 1,
      help = "batches per step" },
    { "optimizer", default = "adamw", help = "plugin; see gyre plugins" },
    { "lr", type = "number", default = 1e-3, min = 0 },
    { "min-lr", type = "number", default = 1e-4, min = 0,
      help = "at the end of the cosine" },
    { "warmup", type = "integer", default = 20, min = 0 },
    { "weight-decay", type = "number", default = 0.1, min = 0 },
    { "beta2", type = "number", default = 0.99, min = 0, max = 1 },
    { "clip", type = "number", default = 1.0, min = 0, help = "0: none" },
    { "early", type = "switch", help = "update during backward; --clip 0" },
    { "from", type = "path",
      help = "safetensors file with the weights of a new store" },
    { "state", type = "choice", choices = { "f32", "bf16", "bf16-stochastic", "q8" },
      default = "f32", help = "how state slots lie on storage" },
    { "master", type = "choice", choices = { "f32", "bf16", "bf16-stochastic" },
      default = "f32", help = "how parameters lie there" },
    { "compress",
      help = "gradients: a plugin and its parameters, as topk,ratio=0.01" },
    { "residual", type = "choice", choices = { "committed", "volatile", "off" },
      default = "committed", help = "what compression left out" },
    { "late-clip", type = "switch", help = "compress before the norm is known" },
    { "spill", type = "switch", help = "gradients on storage" },
    { "placement", type = "choice", choices = { "near", "host" }, default = "near" },
    { "compute", default = "cpu", help = "beside each device, as opencl" },
    { "link-rate", type = "number", default = 0, min = 0,
      help = "host link, bytes per second; 0: as it is" },
    { "endurance", type = "number", default = 0, min = 0,
      help = "bytes that the devices may take" },
    { "wear-budget", type = "integer", default = 0, min = 0,
      help = "end when so many bytes were written" },
    { "devices", type = "integer", min = 1, max = 64, help = "of a new store" },
    { "chunk-elements", type = "integer", min = 0, help = "of a new store" },
    { "io", default = "auto", help = "engine" },
    { "commit-every", type = "integer", default = 1, min = 1 },
    { "validate-every", type = "integer", default = 100, min = 0 },
    { "threads", type = "integer", default = 0, min = 0, help = "0: all" },
    { "schedule", help = "attention by ranks: plugin; see gyre plugins" },
    { "ranks", type = "integer", min = 1,
      help = "that share each sequence; default 1, with mpi all" },
    { "backend", type = "choice", choices = { "threads", "mpi" },
      default = "threads", help = "of ranks; mpi: under mpirun" },
    { "timeout", type = "number", default = 120, min = 0,
      help = "mpi: seconds to wait for a rank; 0: for ever" },
    { "exact", type = "switch",
      help = "attention: same bits on any ranks by any schedule" },
    { "sample", type = "integer", default = 0, min = 0, help = "bytes" },
    { "ngram", type = "switch", help = "compare with an n-gram model" },
    { "history", type = "switch", help = "loss and norm of each step (--json)" },
}

local VALIDATION_BATCHES = 8

local model -- not made yet

-- Print why, and end; what is open is closed, other processes are told.
local function fail(text)
    io.stderr:write("train.lua: ", text, "\n")
    if model then
        model:give_up(text)
    end
    gyre.exit(1)
end

-- The value, or the end with what the store said.
local function check(value, message)
    if value == nil then
        fail(message)
    end
    return value
end

-- What the module gpt raises, as a message without a traceback.
local function try(f, ...)
    local good, value, more = pcall(f, ...)
    if not good then
        local text = tostring(value):gsub("^[^\n]-:%d+: ", "")
        if not text:match("^gpt: ") then
            error(value, 0)
        end
        fail(text)
    end
    return value, more
end

for _, name in ipairs { "ranks", "backend" } do
    if not opt.schedule and opt[name] and opt[name] ~= "threads" then
        io.stderr:write("train.lua: --", name, " needs --schedule NAME\n")
        gyre.exit(2)
    end
end
if opt.early and opt.clip ~= 0 then
    io.stderr:write("train.lua: --early needs --clip 0: the norm is known ",
                    "after the last gradient only\n")
    gyre.exit(2)
end

-- ---- the store's specification -------------------------------------------

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
local function specification(parameters)
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

local shape = { layers = opt.layers, heads = opt.heads, width = opt.width,
                context = opt.context, seed = opt.seed,
                threads = opt.threads, schedule = opt.schedule,
                ranks = opt.ranks, exact = opt.exact,
                backend = opt.backend, timeout = opt.timeout }

local planned, model_bytes = try(gpt.plan, shape, opt.batch)
local text <close> = try(gpt.text, opt.text)
gyre.plan_run { title = "train.lua", store = specification(planned),
                path = opt.store, steps = opt.steps,
                memory = { ["gpt: weights, gradients, work"] = model_bytes,
                           ["text, mapped"] = #text } }

-- ---- open ----------------------------------------------------------------

-- First, since its tables are gone again before the model comes.
local ngram = opt.ngram and try(text.ngram, text, 3) or nil
model = try(gpt.new, shape)
local closing_model <close> = model
local process, processes = model:process()

local function gather(text)
    return try(model.gather, model, text)
end

local parameters = model:parameters()

-- What stands for the store in processes that have none.
local function nothing()
    return true
end
local no_round = { gradient = nothing, release = nothing, next = nothing,
                   wait = nothing,
                   update = function() return { skipped = false } end,
                   finish = function() return { committed = true } end }
local no_store = { begin = function() return no_round end, close = nothing,
                   bind = nothing, pull = nothing }

local store, made
if process == 0 then
    store, made = gyre.open_or_create(opt.store, specification(parameters))
    check(store, made)
    if made and opt.from then
        store:close()
        check(gyre.import(opt.store, opt.from))
        store = check(gyre.open_or_create(opt.store,
                                          specification(parameters)))
    end
else
    store, made = no_store, true
end
local closing <close> = setmetatable({}, { -- store may be another by then
    __close = function()
        store:close()
    end })

-- Options that decide the result; they are kept in the store's blob.
local decisive = { "steps", "seed", "layers", "heads", "width", "context",
                   "batch", "micro_batches", "optimizer", "lr", "min_lr",
                   "warmup", "weight_decay", "beta2", "clip", "state",
                   "master", "compress", "late_clip", "schedule", "exact" }

-- step: rounds, the place in the data; applied: those that were not skipped,
-- the place in the schedule.
local state = { step = 0, applied = 0, tokens = 0, options = {} }
for _, name in ipairs(decisive) do
    state.options[name] = opt[name]
end

local function resume(blob)
    local old = check(gyre.json_decode(blob))
    for _, name in ipairs(decisive) do
        local was, is = old.options[name], opt[name]
        if was ~= is then
            io.stderr:write(("train.lua: warning: --%s was %s, is %s: the " ..
                             "result is another than in one run\n")
                            :format(name:gsub("_", "-"), was, is))
        end
    end
    state.step, state.applied = old.step, old.applied
    state.tokens, state.best = old.tokens, old.best
end

local function compare_model()
    local tensors = check(store:tensors())
    for i, p in ipairs(parameters) do
        local t = tensors[i]
        if not t or t.name ~= p.name or t.elements ~= p.n then
            fail(("the store %s holds another model: its tensor %d is %s, " ..
                  "not %s of %d elements"):format(opt.store, i,
                  t and t.name or "missing", p.name, p.n))
        end
    end
end

if not made then
    compare_model()
    local blob = store:blob()
    if blob then
        resume(blob)
    end
end
for i, p in ipairs(parameters) do
    check(store:bind(i, p.data))
end
check(store:pull())

-- All processes go on where process 0 is, when they were started alike: else
-- one would wait for what another does not send.
local function agree()
    local same = { text = #text, stop_at = opt.stop_at,
                   validate_every = opt.validate_every,
                   wear_budget = opt.wear_budget }
    for _, name in ipairs(decisive) do
        same[name] = opt[name]
    end
    local all = gather(gyre.json { state = state, same = same })
    local first = check(gyre.json_decode(all[1]))
    for p = 2, #all do
        local other = check(gyre.json_decode(all[p])).same
        for _, options in ipairs { other, first.same } do
            for name in pairs(options) do
                if other[name] ~= first.same[name] then
                    fail(("process %d has --%s %s, process 0 %s: start all " ..
                          "with the same options and text"):format(
                          p - 1, (name:gsub("_", "-")), other[name],
                          first.same[name]))
                end
            end
        end
    end
    if process > 0 then
        state.step, state.applied = first.state.step, first.state.applied
        state.tokens, state.best = first.state.tokens, first.state.best
    end
end
agree()

-- What process 0 says.
local function everywhere(answer)
    return gather(tostring(answer))[1] == "true"
end

-- Called when the model is about to read parameter i.
local updating -- the round of the step before, while its chunks update
local stale = true -- parameters of processes without a store
local function on_parameter(i)
    if updating then
        check(updating:wait(i))
    end
    if stale then
        try(model.share, model, i)
        stale = i < #parameters
    end
end

-- ---- one step ------------------------------------------------------------

local first = state.step
local last = math.min(opt.steps, opt.stop_at or opt.steps)
local tokens_per_step = opt.batch * opt.context * opt.micro_batches

-- Warm up in a line, then half a cosine down to min_lr.
local function rate(step)
    if step < opt.warmup then
        return opt.lr * (step + 1) / opt.warmup
    end
    local part = (step - opt.warmup) / math.max(1, opt.steps - opt.warmup)
    return opt.min_lr + 0.5 * (opt.lr - opt.min_lr) *
               (1 + math.cos(math.pi * part))
end

local function batch_at(step, micro)
    return text:batch("train", opt.batch, opt.context, opt.seed,
                      step * opt.micro_batches + micro)
end

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

local totals = { read_bytes = 0, write_bytes = 0, gradient_bytes = 0,
                 parameter_bytes = 0, store_ns = 0, exposed_ns = 0,
                 skipped = 0, steps = 0 }
local history = { loss = {}, norm = {} }
local skipping -- whether that round was skipped
local final    -- the last report

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
    final = check(round:finish(gyre.json(state)))
    for name in pairs(totals) do
        if math.type(final[name]) == "integer" and name ~= "skipped" then
            totals[name] = totals[name] + final[name]
        end
    end
    totals.steps = totals.steps + 1
    totals.skipped = totals.skipped + (final.skipped and 1 or 0)
    if opt.history then
        table.insert(history.norm, final.norm)
    end
end

local function begin()
    finish()
    local lr = rate(state.applied)
    return check(store:begin {
        groups = { settings { lr = lr, weight_decay = opt.weight_decay },
                   settings { lr = lr, weight_decay = 0 } },
        clip = opt.clip, micro_batches = opt.micro_batches,
        denominator = opt.micro_batches, early = opt.early,
        late_clip = opt.late_clip })
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

-- ---- the run -------------------------------------------------------------

local bar <close> = process == 0 and
    gyre.progress { label = "train", total = last, unit = "steps" } or
    setmetatable({ update = nothing, print = nothing, finish = nothing },
                 { __close = nothing })
local loss, valid
local busy = 0 -- seconds in training steps
bar:update(first)

-- Whether the store may still be written to; the last step is whole then.
local function within_budget()
    if opt.wear_budget == 0 then
        return true
    end
    finish()
    local wear = process == 0 and check(store:wear())
    return everywhere(process > 0 or wear.written + wear.bytes_per_round <=
                                         opt.wear_budget)
end

local worn = false
for step = first, last - 1 do
    if not within_budget() then
        worn = true
        finish()
        bar:print(("the wear budget of %d bytes ends this run after step %d")
                  :format(opt.wear_budget, step))
        break
    end
    local start = gyre.clock()
    loss = train(step)
    local at_check = opt.validate_every > 0 and
                         (step + 1) % opt.validate_every == 0
    if at_check or step == last - 1 then
        finish()
    end
    busy = busy + gyre.clock() - start
    if opt.history then
        table.insert(history.loss, loss)
    end
    if at_check then
        valid = validate()
        state.best = math.min(state.best or valid, valid)
        bar:print(("step %d  loss %.4f  validation %.4f"):format(step + 1,
                                                                 loss, valid))
    end
    bar:update(step + 1, ("loss %.3f"):format(loss))
end
bar:finish()
if final and not final.committed then
    check(store:commit(gyre.json(state)))
end
valid = validate_all()

-- ---- the report ----------------------------------------------------------

-- Whether the losses have the same bits everywhere.
local alike = true
local losses = gather(string.pack("<dd", loss or 0, valid))
for _, other in ipairs(losses) do
    alike = alike and other == losses[1]
end
if process > 0 then
    return
end

local info = check(store:info())
local report = {
    first_step = first, step = state.step, parameters = info.elements,
    loss = { train = loss, validation = valid, best = state.best,
             ngram = ngram },
    digest = check(store:digest()), skipped = totals.skipped, worn = worn,
    norm = final and final.norm, tokens = state.tokens,
    store = { path = info.path, io = info.io, devices = info.devices,
              chunk_elements = info.chunk_elements },
}
if totals.steps > 0 then
    local per = totals.steps * info.elements
    report.seconds = busy
    report.tokens_per_second = totals.steps * tokens_per_step / busy
    report.store.bytes_per_parameter = {
        read = totals.read_bytes / per, written = totals.write_bytes / per,
        gradient = totals.gradient_bytes / per,
        parameter = totals.parameter_bytes / per }
    report.store.ledger = check(store:ledger())
    report.store.wear = check(store:wear())
    report.store.hidden = totals.store_ns > 0 and
        1 - totals.exposed_ns / totals.store_ns or nil
end
if opt.history then
    report.history = history
end
if opt.schedule then
    report.ranks = { schedule = opt.schedule, backend = opt.backend,
                     count = model:ranks(), processes = processes,
                     same_loss = alike }
end
if opt.sample > 0 then
    report.sample = model:generate("\n", opt.sample,
                                   { temperature = 0.8, top_k = 40,
                                     seed = opt.seed })
end

if gyre.json_output then
    if report.sample then -- bytes of a byte model need not be UTF-8
        report.sample = report.sample:gsub("[\x80-\xff]", "?")
    end
    print(gyre.json(report, true))
    return
end

local function row(name, format, ...)
    local values = { ... }
    if #values > 0 then
        print(("%-22s" .. format):format(name, table.unpack(values)))
    end
end
row("steps", "%d to %d, %d parameters", first, state.step, info.elements)
row("loss, training", "%.4f nats a byte", loss)
row("loss, validation", "%.4f nats a byte", valid)
row("loss, n-gram", "%.4f nats a byte (validation, 3 bytes of context)",
    report.loss.ngram)
row("tokens a second", "%.0f", report.tokens_per_second)
local bytes = report.store.bytes_per_parameter
if bytes then
    row("store", "%.2f B read, %.2f B written a parameter and step",
        bytes.read, bytes.written)
    row("host link", "%.2f B of gradients, %.2f B of parameters",
        bytes.gradient, bytes.parameter)
    row("store time hidden", "%.0f %%", 100 * (report.store.hidden or 0))
    local ledger, wear = report.store.ledger, report.store.wear
    row("ledger", "%.2f B over the host link, %.2f B read and %.2f B " ..
        "written by devices", ledger.host_bytes / ledger.elements,
        ledger.device_read_bytes / ledger.elements,
        ledger.device_write_bytes / ledger.elements)
    row("flash", "%.2f MB written a step, %.2f GB in the store's life%s",
        wear.bytes_per_round / 1e6, wear.written / 1e9,
        wear.rounds_left < math.huge and
            (", %.0f steps left"):format(wear.rounds_left) or "")
end
if not alike then
    row("processes", "do not compute the same bits: other processors or " ..
        "libraries?")
end
if totals.skipped > 0 then
    row("skipped", "%d steps with gradients that are not finite",
        totals.skipped)
end
row("digest", "%s", report.digest)
if report.sample then
    print("\n" .. report.sample)
end
