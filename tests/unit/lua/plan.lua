-- SPDX-License-Identifier: Apache-2.0
-- Attention plans: made by name, by a function and from a file.

local gyre = require "gyre"
local tap = require "tap"
local folder = arg[1]

local small = { ranks = 4, seq = 40, heads = 4, kv_heads = 2, head_dim = 8,
                dtype = "f64" }
local function with(more)
    local t = {}
    for k, v in pairs(small) do t[k] = v end
    for k, v in pairs(more) do t[k] = v end
    return t
end

-- ---- by name ---------------------------------------------------------------

local ring = assert(gyre.plan(with { schedule = "ring" }))
local bytes = ring:bytes()
-- 3 hops of 10 tokens x 2 KV heads x (8 + 8) x 8 bytes
tap.equal(bytes.forward.total, 3 * 10 * 2 * 16 * 8.0, "bytes of a ring")
tap.equal(bytes.forward.phases.ring.received.max, 3 * 10 * 2 * 16 * 8,
          "what is received at most")
tap.ok(bytes.backward.total > bytes.forward.total, "backward has more")
local proof = ring:prove()
tap.ok(proof.ok and proof.ops > 100 and proof.peak_bytes > 0, "it is right")
local run = ring:run { kernel = "f64" }
tap.ok(run.ok and run.ledger_ok, "it runs")
tap.ok(run.tensors.DV.max_rel_error < 1e-12, "gradients, too")
tap.ok(ring:run { kernel = "f64", workers = 3 }.ok, "by three threads a rank")
tap.ok(ring:show(1):find("ATT Q%[1 6%]"), "ops of a rank")
tap.ok(ring:text("backward"):find("GRD"), "the text of a pass")

local double = assert(gyre.plan(with { schedule = { "double-ring", window = 2 },
                                       pass = "forward" }))
tap.ok(double:bytes().forward.phases.inner, "a parameter is heard")
tap.equal(double:bytes().backward, nil, "one pass alone")

-- ---- from a file -----------------------------------------------------------

for _, binary in ipairs { false, true } do
    local path = folder .. "/ring.plan"
    assert(ring:save(path, { binary = binary, pass = "backward" }))
    local back = assert(gyre.plan { file = path })
    tap.equal(back:text(), ring:text("backward"), "a file comes back")
end
local broken = assert(io.open(folder .. "/broken.plan", "w"))
broken:write("gyre-plan 1\nname nothing\n")
broken:close()
tap.fails("broken.plan:2: text in", "FORMAT", "a broken file is named by line",
          gyre.plan { file = folder .. "/broken.plan" })
tap.fails("none.plan", "NOT_FOUND", "a missing file",
          gyre.plan { file = folder .. "/none.plan" })
tap.fails("/no/folder", "IO", "a folder that is not",
          ring:save("/no/folder/x.plan"))

-- ---- by a function ---------------------------------------------------------

-- All KV is gathered, then attended to: the simplest there is.
local kept
local function gather(b, rank, pass)
    kept = b
    local p = b:problem()
    local user = { external = true, saved = true }
    local mine = b:owned("Q", rank)
    local q = b:slot("Q", mine, user)
    local kv = b:slot("KV", b:owned("KV", rank), user)
    local o = b:slot("O", mine, user)
    local sum = b:slot("O*", mine)
    local st = b:slot("ST", mine, { saved = true })
    local all = { kv }
    for i = 1, p.ranks - 1 do
        local from = (rank - i) % p.ranks
        all[i + 1] = b:slot("KV", b:owned("KV", from))
        b:begin("gather", 1)
        b:put(kv, (rank + i) % p.ranks)
        b:get(all[i + 1], from)
        b:end_()
    end
    for i = 1, p.ranks do
        b:att(q, all[i], sum)
    end
    b:fin(sum, o, b:view(st, { rows = mine, plane = "lse" }))
end
local own = with { schedule = gather, name = "own", pass = "forward" }
local plan = assert(gyre.plan(own))
tap.ok(plan:prove().ok, "a function's plan is right")
tap.ok(plan:run().ok, "and runs")
for _, delay in ipairs { -1, 2, 1e300, 0 / 0 } do
    tap.raises("delay is .* seconds: 0 to 1",
               "a delay of " .. delay .. " s is refused", plan.run, plan,
               { delay = delay })
end
tap.raises("kernel opencl is for dtype f32 or bf16, the plan has f64",
           "a device takes what it can", plan.run, plan, { kernel = "opencl" })
tap.raises("good until", "the builder is over with the function",
           kept.problem, kept)

own.schedule = function(b, rank)
    gather(b, rank)
    if rank == 2 then
        b:att(0, 1, 3)
    end
end
local wrong = assert(gyre.plan(own)):prove()
tap.equal(wrong.ok, false, "a block that counts twice is found")
tap.equal(wrong.rank, 2, "with its rank")
tap.ok(#wrong.reason > 10, "and the reason")

own.schedule = function(b) b:put(0, 1) end
tap.fails("plan 'own', rank 0: .* stands in no group", "PLAN",
          "what the builder refuses", gyre.plan(own))
own.schedule = function(b) b:refuse("needs an even number, 4 would do") end
tap.fails("4 would do", "PLAN", "a schedule can refuse", gyre.plan(own))

-- ---- misuse ----------------------------------------------------------------

local function raises(pattern, name, schedule)
    own.schedule = schedule
    tap.raises(pattern, name, gyre.plan, own)
end
raises("own words", "an error of the script comes out",
       function() error("own words") end)
raises("no kind 'X'", "an unknown kind",
       function(b) b:slot("X", b:owned("Q", 0)) end)
raises("invalid option 'V'", "an unknown side",
       function(b) b:owned("V", 0) end)
raises("colour", "an unknown option of a slot", function(b)
    b:slot("Q", b:owned("Q", 0), { colour = "red" })
end)
raises("is no view", "a view that is not",
       function(b) b:view(7, { rows = 0 }) end)
raises("lanes are", "a lane that is not", function(b) b:begin("x", 99) end)
raises("field 'schedule'", "a schedule that is none", 7)
tap.raises("'maske'", "an unknown field", gyre.plan,
           with { schedule = "ring", maske = "full" })
tap.raises("field 'mask'", "an unknown mask", gyre.plan,
           with { schedule = "ring", mask = "dense" })
tap.raises('no parameter "hop"', "an unknown parameter", gyre.plan,
           with { schedule = { "ring", hop = 1 } })
tap.raises("double%-ring", "what a schedule cannot do", gyre.plan,
           with { schedule = { "double-ring", window = 3 } })
tap.raises("no such rank", "a rank that is not", ring.show, ring, 4)
tap.raises("'sideways'", "a pass that is not", ring.text, ring, "sideways")
plan:close()
tap.raises("closed", "a plan that is closed", plan.bytes, plan)
local documents = assert(gyre.plan(with {
    schedule = "ring", layout = "documents", drop = "dead",
    mask = { documents = { 7, 20, 13 } } }))
tap.ok(documents:prove().ok and documents:run().ok, "packed documents")
tap.done()
