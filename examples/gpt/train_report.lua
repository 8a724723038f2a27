-- SPDX-License-Identifier: Apache-2.0
-- What came of a run of train.lua: counted round by round, then printed, as
-- lines or with --json as one object.
--
--     local tally = report.start()
--     tally:step(loss)            -- of each training step
--     tally:round(final)          -- what each round:finish said
--     report.print(tally:sum { ... })

local gyre = require "gyre"
local opt = require "train_options"
local check = require("fail").check

local report = {}
local tally = {}
tally.__index = tally

-- ---- counting --------------------------------------------------------------

function report.start()
    return setmetatable({
        totals = { read_bytes = 0, write_bytes = 0, gradient_bytes = 0,
                   parameter_bytes = 0, store_ns = 0, exposed_ns = 0,
                   skipped = 0, steps = 0 },
        history = { loss = {}, norm = {} } }, tally)
end

function tally:step(loss)
    self.loss = loss
    if opt.history then
        table.insert(self.history.loss, loss)
    end
end

function tally:round(final)
    local totals = self.totals
    for name in pairs(totals) do
        if math.type(final[name]) == "integer" and name ~= "skipped" then
            totals[name] = totals[name] + final[name]
        end
    end
    totals.steps = totals.steps + 1
    totals.skipped = totals.skipped + (final.skipped and 1 or 0)
    self.final = final
    if opt.history then
        table.insert(self.history.norm, final.norm)
    end
end

-- ---- the report ------------------------------------------------------------

-- Bytes and times of the rounds of this run.
local function add_rounds(result, run, totals)
    local store, per = result.store, totals.steps * result.parameters
    result.seconds = run.seconds
    result.tokens_per_second = totals.steps * run.tokens_per_step / run.seconds
    store.bytes_per_parameter = {
        read = totals.read_bytes / per, written = totals.write_bytes / per,
        gradient = totals.gradient_bytes / per,
        parameter = totals.parameter_bytes / per }
    store.ledger = check(run.store:ledger())
    store.wear = check(run.store:wear())
    store.hidden = totals.store_ns > 0 and
        1 - totals.exposed_ns / totals.store_ns or nil
end

-- Of a run: its store, model and state, the step it began with, whether the
-- wear budget ended it, seconds in steps of tokens_per_step, losses valid and
-- ngram, and whether all processes have the same losses.
function tally:sum(run)
    local info = check(run.store:info())
    local result = {
        first_step = run.first, step = run.state.step,
        parameters = info.elements,
        loss = { train = self.loss, validation = run.valid,
                 best = run.state.best, ngram = run.ngram },
        digest = check(run.store:digest()), skipped = self.totals.skipped,
        worn = run.worn, norm = self.final and self.final.norm,
        tokens = run.state.tokens,
        store = { path = info.path, io = info.io, devices = info.devices,
                  chunk_elements = info.chunk_elements },
    }
    if self.totals.steps > 0 then
        add_rounds(result, run, self.totals)
    end
    if opt.history then
        result.history = self.history
    end
    if opt.schedule then
        local _, processes = run.model:process()
        result.ranks = { schedule = opt.schedule, backend = opt.backend,
                         count = run.model:ranks(), processes = processes,
                         same_loss = run.alike }
    end
    if opt.sample > 0 then
        result.sample = run.model:generate("\n", opt.sample,
                                           { temperature = 0.8, top_k = 40,
                                             seed = opt.seed })
    end
    return result
end

-- ---- printing --------------------------------------------------------------

-- A line, unless its first value is missing.
local function row(name, format, ...)
    local values = { ... }
    if #values > 0 then
        print(("%-22s" .. format):format(name, table.unpack(values)))
    end
end

local function print_store(store)
    local bytes, ledger, wear = store.bytes_per_parameter, store.ledger,
                                store.wear
    row("store", "%.2f B read, %.2f B written a parameter and step",
        bytes.read, bytes.written)
    row("host link", "%.2f B of gradients, %.2f B of parameters",
        bytes.gradient, bytes.parameter)
    row("store time hidden", "%.0f %%", 100 * (store.hidden or 0))
    row("ledger", "%.2f B over the host link, %.2f B read and %.2f B " ..
        "written by devices", ledger.host_bytes / ledger.elements,
        ledger.device_read_bytes / ledger.elements,
        ledger.device_write_bytes / ledger.elements)
    row("flash", "%.2f MB written a step, %.2f GB in the store's life%s",
        wear.bytes_per_round / 1e6, wear.written / 1e9,
        wear.rounds_left < math.huge and
            (", %.0f steps left"):format(wear.rounds_left) or "")
end

local function print_rows(result)
    row("steps", "%d to %d, %d parameters", result.first_step, result.step,
        result.parameters)
    row("loss, training", "%.4f nats a byte", result.loss.train)
    row("loss, validation", "%.4f nats a byte", result.loss.validation)
    row("loss, n-gram", "%.4f nats a byte (validation, 3 bytes of context)",
        result.loss.ngram)
    row("tokens a second", "%.0f", result.tokens_per_second)
    if result.store.bytes_per_parameter then
        print_store(result.store)
    end
    if result.ranks and not result.ranks.same_loss then
        print(("%-22sdo not compute the same bits: other processors or " ..
               "libraries?"):format("processes"))
    end
    if result.skipped > 0 then
        row("skipped", "%d steps with gradients that are not finite",
            result.skipped)
    end
    row("digest", "%s", result.digest)
    if result.sample then
        print("\n" .. result.sample)
    end
end

function report.print(result)
    if not gyre.json_output then
        print_rows(result)
        return
    end
    if result.sample then -- bytes of a byte model need not be UTF-8
        result.sample = result.sample:gsub("[\x80-\xff]", "?")
    end
    print(gyre.json(result, true))
end

return report
