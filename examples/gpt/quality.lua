-- SPDX-License-Identifier: Apache-2.0
-- What compression and codecs cost in quality, on the example GPT.
--
--     gyre run quality.lua --work DIR --text FILE --other FILE
--
-- Three questions, each over several seeds:
--
--     fine-tuning  a checkpoint trained without compression goes on with another
--                  text: plain, top-k with error feedback, top-k without, the
--                  largest 1 % of all elements or of each block of 1,024
--     from scratch the same text from random weights, with each compressor
--     state        the same with the optimizer's state in other codecs
--
-- Each run is one process of train.lua and leaves DIR/NAME.json; what is there
-- is not run again.  The end is a table, DIR/quality.svg, and exit code 1 when
-- a promise does not hold: top-k of all with error feedback within 4 % of plain
-- and at least half of the gap closed, 8-bit state within 0.5 %.

local folder = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = folder .. "/?.lua;" .. package.path

local gyre = require "gyre"
local fail = require "fail"

local opt = gyre.options {
    usage = "Compare compressors and state codecs by the loss they lead to.",
    { "work", type = "path", required = true, help = "folder for the runs" },
    { "text", type = "path", required = true, help = "first text" },
    { "other", type = "path", required = true, help = "text to fine-tune on" },
    { "seeds", type = "integer", default = 3, min = 1 },
    { "pretrain-steps", type = "integer", default = 2500, min = 1 },
    { "tune-steps", type = "integer", default = 600, min = 1 },
    { "scratch-steps", type = "integer", default = 1000, min = 1 },
    { "batch", type = "integer", default = 8, min = 1 },
    { "context", type = "integer", default = 64, min = 1 },
    { "gyre", default = "gyre", help = "the command" },
}

local TOPK = "topk,ratio=0.01"

-- ---- running ---------------------------------------------------------------

local function quote(text)
    return "'" .. tostring(text):gsub("'", "'\\''") .. "'"
end

local function command(...)
    local words = {}
    for i, word in ipairs { ... } do
        words[i] = quote(word)
    end
    return table.concat(words, " ")
end

local function run(text, name)
    if not os.execute(text) then
        fail.now(("%s failed: %s"):format(name, text))
    end
end

local function read(path)
    local file = io.open(path, "r")
    local text = file and file:read("a")
    if file then
        file:close()
    end
    return text and gyre.json_decode(text)
end

-- One run of train.lua; its report.
local function train(name, seed, steps, text, extra)
    local base = ("%s/%s-%d"):format(opt.work, name, seed)
    local report = read(base .. ".json")
    if report then
        return report, base
    end
    local words = { opt.gyre, "run", "--json", "--quiet",
                    folder .. "/train.lua", "--store", base .. ".store",
                    "--text", text, "--seed", seed, "--steps", steps,
                    "--batch", opt.batch, "--context", opt.context,
                    "--validate-every", 0 }
    for _, word in ipairs(extra) do
        words[#words + 1] = word
    end
    os.execute(command("rm", "-rf", base .. ".store"))
    run(command(table.unpack(words)) .. " >" .. quote(base .. ".part"), name)
    run(command("mv", base .. ".part", base .. ".json"), name)
    return read(base .. ".json"), base
end

-- The weights of a run, as a file.
local function weights(base)
    local file = base .. ".safetensors"
    if not io.open(file, "r") then
        run(command(opt.gyre, "store", "export", "--quiet",
                    "--parameters-only", base .. ".store", file), "export")
    end
    return file
end

-- ---- the runs --------------------------------------------------------------

local tune = {
    { "plain" },
    { "topk 1 % of all, error feedback", "--compress",
      TOPK .. ",scope=global" },
    { "topk 1 % of all, no feedback", "--compress", TOPK .. ",scope=global",
      "--residual", "off" },
    { "topk 1 % of blocks, error feedback", "--compress", TOPK },
    { "topk 1 % of blocks, late clip", "--compress", TOPK, "--late-clip" },
    { "topk 1 % of blocks, no feedback", "--compress", TOPK, "--residual",
      "off" },
}
local scratch = {
    { "plain" },
    { "topk 1 % of blocks, error feedback", "--compress", TOPK },
    { "topk 1 % of blocks, no feedback", "--compress", TOPK, "--residual",
      "off" },
    { "topk 10 % of blocks, error feedback", "--compress", "topk,ratio=0.1" },
    { "quantize 8 bit", "--compress", "quantize,bits=8" },
    { "quantize 4 bit", "--compress", "quantize,bits=4" },
    { "fp8", "--compress", "fp8" },
    { "sign", "--compress", "sign" },
    { "state q8", "--state", "q8" },
    { "state bf16", "--state", "bf16" },
    { "state bf16 stochastic", "--state", "bf16-stochastic" },
    { "all bf16 stochastic", "--state", "bf16-stochastic", "--master",
      "bf16-stochastic" },
}

local function slug(text)
    return (text:gsub("[^%w]+", "-"))
end

-- { name, losses by seed, mean, spread }
local function collect(kind, list, one)
    local rows = {}
    for _, entry in ipairs(list) do
        local name, losses, sum = entry[1], {}, 0
        for seed = 1, opt.seeds do
            local report = one(kind .. "-" .. slug(name), seed,
                               { table.unpack(entry, 2) })
            losses[seed] = report.loss.validation
            sum = sum + losses[seed]
        end
        local mean = sum / opt.seeds
        local low, high = math.min(table.unpack(losses)),
                          math.max(table.unpack(losses))
        rows[#rows + 1] = { name = name, losses = losses, mean = mean,
                            low = low, high = high }
        rows[name] = rows[#rows]
    end
    return rows
end

local bar <close> = gyre.progress { label = "runs", unit = "runs",
                                    total = opt.seeds *
                                        (1 + #tune + #scratch) }
local tuned = collect("tune", tune, function(name, seed, extra)
    local _, base = train("pretrain", seed, opt.pretrain_steps, opt.text, {})
    local words = { "--from", weights(base), table.unpack(extra) }
    local report = train(name, seed, opt.tune_steps, opt.other, words)
    bar:add(1, name)
    return report
end)
local fresh = collect("scratch", scratch, function(name, seed, extra)
    local report = train(name, seed, opt.scratch_steps, opt.text, extra)
    bar:add(1, name)
    return report
end)
bar:finish()

-- ---- the picture -----------------------------------------------------------

local svg = {}
local function draw(format, ...)
    svg[#svg + 1] = format:format(...)
end

local function escape(text)
    return (text:gsub("&", "&amp;"):gsub("<", "&lt;"))
end

-- One panel: a dot for each seed, a bar for the mean, a line at plain.
local function panel(title, rows, top)
    local low, high = math.huge, 0
    for _, row in ipairs(rows) do
        low, high = math.min(low, row.low), math.max(high, row.high)
    end
    local left, width, pad = 230, 380, (high - low) * 0.08 + 1e-9
    local function x(loss)
        return left + width * (loss - low + pad) / (high - low + 2 * pad)
    end
    draw('<text x="10" y="%d" class="title">%s</text>', top, escape(title))
    draw('<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" class="plain"/>',
         x(rows[1].mean), x(rows[1].mean), top + 10, top + 14 + 20 * #rows)
    for i, row in ipairs(rows) do
        local y = top + 8 + 20 * i
        draw('<text x="%d" y="%d" class="name">%s</text>', left - 10, y + 4,
             escape(row.name))
        for _, loss in ipairs(row.losses) do
            draw('<circle cx="%.1f" cy="%d" r="3.5"/>', x(loss), y)
        end
        draw('<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" class="mean"/>',
             x(row.mean), x(row.mean), y - 7, y + 7)
        draw('<text x="%d" y="%d">%.4f  %+.2f %%</text>', left + width + 10,
             y + 4, row.mean, 100 * (row.mean / rows[1].mean - 1))
    end
    return top + 50 + 20 * #rows
end

draw('<svg xmlns="http://www.w3.org/2000/svg" width="740" height="%d" ' ..
     'font-family="sans-serif" font-size="12">', 90 + 20 * (#tuned + #fresh) +
     50)
draw('<style>.title{font-weight:bold}.name{text-anchor:end}' ..
     'circle{fill:#4477aa;fill-opacity:.7}.mean{stroke:#222;' ..
     'stroke-width:2}.plain{stroke:#bbb;stroke-dasharray:4 3}</style>')
draw('<rect width="100%%" height="100%%" fill="white"/>')
local y = panel(("Fine-tuning, %d steps: validation loss, nats a byte; a " ..
                 "dot for each seed"):format(opt.tune_steps), tuned, 24)
y = panel(("From scratch, %d steps"):format(opt.scratch_steps), fresh, y)
draw('</svg>')
local file <close> = assert(io.open(opt.work .. "/quality.svg", "w"))
file:write(table.concat(svg, "\n"), "\n")

-- ---- the promises ----------------------------------------------------------

local plain, with, without = tuned[1].mean,
    tuned["topk 1 % of all, error feedback"].mean,
    tuned["topk 1 % of all, no feedback"].mean
local promises = {
    { name = "top-k with error feedback within 4 % of plain",
      value = with / plain - 1, good = with / plain - 1 <= 0.04 },
    { name = "error feedback closes at least half of the gap",
      value = (without - with) / (without - plain),
      good = without > plain and with - plain <= (without - plain) / 2 },
    { name = "8-bit state within 0.5 % of f32",
      value = fresh["state q8"].mean / fresh[1].mean - 1,
      good = fresh["state q8"].mean / fresh[1].mean - 1 <= 0.005 },
}
local kept = true
for _, promise in ipairs(promises) do
    kept = kept and promise.good
end

if gyre.json_output then
    print(gyre.json({ tune = { table.unpack(tuned) },
                      scratch = { table.unpack(fresh) },
                      promises = promises }, true))
else
    for _, part in ipairs { { "fine-tuning", tuned },
                            { "from scratch", fresh } } do
        local title, rows = part[1], part[2]
        print(("%-36s %9s %9s  %s"):format(title, "loss", "to plain", "seeds"))
        for _, row in ipairs(rows) do
            local each = {}
            for i, loss in ipairs(row.losses) do
                each[i] = ("%.4f"):format(loss)
            end
            print(("  %-34s %9.4f %+8.2f%%  %s"):format(row.name, row.mean,
                  100 * (row.mean / rows[1].mean - 1),
                  table.concat(each, " ")))
        end
    end
    for _, promise in ipairs(promises) do
        print(("%-52s %8.3f  %s"):format(promise.name, promise.value,
                                         promise.good and "good" or "BROKEN"))
    end
end
if not kept then
    gyre.exit(1)
end
