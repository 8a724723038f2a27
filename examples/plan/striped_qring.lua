-- SPDX-License-Identifier: Apache-2.0
-- A schedule of one's own: K and V stay at home, Q and its partial O travel.
-- Striped tokens balance the causal mask: every rank has every N-th token.
local gyre = require "gyre"
local o = gyre.options {
    usage = "Write, prove and run a striped ring of Q.",
    { "ranks", type = "integer", default = 4, min = 1, max = 64 },
    { "seq", type = "integer", default = 256, min = 1, help = "tokens" },
}

-- Step i: rank r holds Q and O* of rank r - i.  O* needs one hop more: home.
local function qring(b, rank)
    local p = b:problem()
    local P, left, right = p.ranks, (rank - 1) % p.ranks, (rank + 1) % p.ranks
    local mine = b:owned("Q", rank)
    local user = { external = true, saved = true }
    local q = b:slot("Q", mine, user)
    local kv = b:slot("KV", b:owned("KV", rank), user)
    local out = b:slot("O", mine, user)
    local st = b:slot("ST", mine, { saved = true })
    local lse = b:view(st, { rows = mine, plane = "lse" })
    local sum = b:slot("O*", mine)
    for i = 1, P do
        local rows = b:owned("Q", (rank - i) % P)
        local next_q
        if i < P then -- the next Q comes while this one is worked on
            next_q = b:slot("Q", rows)
            b:begin("ring", 1)
            b:put(q, right)
            b:get(next_q, left)
            b:end_()
        end
        b:att(q, kv, sum)
        if P > 1 then -- its sum goes on, the next one comes
            local next_sum = b:slot("O*", rows)
            b:begin("reduce", 2)
            b:put(sum, right, 1)
            b:get(next_sum, left, 1)
            b:end_()
            sum = next_sum
        end
        q = next_q
    end
    b:fin(sum, out, lse)
end

local plan = assert(gyre.plan {
    schedule = qring, name = "striped-qring", pass = "forward",
    ranks = o.ranks, seq = o.seq, heads = 4, kv_heads = 2, dtype = "f64",
    layout = "striped" })
local proof = assert(plan:prove())
assert(proof.ok, proof.reason)
local run = assert(plan:run { kernel = "f64" })
assert(run.ok and run.ledger_ok, "the run differs from the definition")
local sent = assert(plan:bytes()).forward
print(("right: %d ops, %.0f bytes sent a rank, O within %.1g"):format(
    proof.ops, sent.total, run.tensors.O.max_rel_error))
