-- SPDX-License-Identifier: Apache-2.0
-- Everything that the module gyre offers, in the order of the manual.
--
-- document.lua makes the page gyre-lua(3) and the editor annotations of it; a
-- test compares it with what the module really has.
--
-- f "name" "arguments" "returns" "text": an argument or return is written as
-- "name: type", with "?" after the name when it may be left out.  FAIL stands
-- for the three values of a failure from outside.

local api = {}
local section

local function part(name, kind, text)
    section = { name = name, kind = kind, text = text, functions = {},
                fields = {} }
    api[#api + 1] = section
end

local function f(name)
    return function(arguments)
        return function(returns)
            return function(text)
                table.insert(section.functions, {
                    name = name, arguments = arguments, returns = returns,
                    text = text })
            end
        end
    end
end

local function field(name, kind, text)
    table.insert(section.fields, { name = name, kind = kind, text = text })
end

-- ---- tables that functions take and give ----------------------------------

part("gyre.tensor", "table", "A tensor of a new store.")
field("name", "string", "unique; may also be element 1 of the table")
field("shape", "integer[]", "extents; {} is one element")
field("group?", "integer", "parameter group, from 1 [1]")
field("frozen?", "boolean", "parameter only, never updated [false]")
field("data?", "gyre.array", "initial values [zeros]")

part("gyre.spec", "table", "A new store: what is fixed, and how it is opened.")
field("tensors", "gyre.tensor[]", "the model")
field("optimizer?", "string|table",
      "name, or { name, parameter = value, ... } [adamw]")
field("devices?", "integer|string[]", "number, or folders and block files [1]")
field("weights?", "number[]|string",
      'share of each device, or "measured" [equal]')
field("chunk_elements?", "integer", "a multiple of 1024 [chosen]")
field("blob_bytes?", "integer", "room for the blob of a commit [64 KiB]")
field("in_place?", "boolean",
      "half the disk, but a crash in a round loses all [false]")
field("io?", "string", "auto, uring or posix [auto]")
field("buffers?", "integer", "chunk buffers of a device [4]")
field("commit_every?", "integer", "rounds between commits [1]")
field("no_read_check?", "boolean",
      "do not verify chunks as rounds read them [false]")
field("lock_wait?", "number", "seconds to wait for a dead owner's I/O [120]")
field("memory_limit?", "integer", "bytes; refuse to start above [none]")
field("state?", "string|table", [[
codec of the slots on storage (f32, bf16, bf16-stochastic, q8), or { slot =
codec, parameter = codec } with "*" for all slots [f32] ]])
field("compressor?", "string|table",
      "of gradients: name, or { name, parameter = value, ... } [none]")
field("residual?", "string",
      "error feedback: committed, volatile or off [committed]")
field("spill?", "boolean", "room for gradients on storage [false]")
field("seed?", "integer", "of stochastic rounding [0]")
field("compute?", "string|string[]", [[
compute device for all devices, or for each: cpu, opencl[:N], cuda[:N],
emulated:read=RATE,write=RATE [cpu] ]])
field("link_rate?", "number", "limit of the host link, bytes per second [none]")
field("placement?", "string", "of the update: near or host [near]")
field("gradients?", "string",
      "spilled (if there is room on storage) or memory [spilled]")
field("allow_inexact?", "boolean",
      "take devices that round division and root wrongly [false]")
field("endurance?", "number",
      "bytes that can be written to the devices in their life [unknown]")
field("wear_budget?", "integer",
      "bytes; rounds are refused once the store has written so many [none]")

part("gyre.open_options", "table", "How a store is opened.")
field("fast?", "boolean", "do not verify every chunk [false]")
field("read_only?", "boolean", "nothing is written [false]")
field("devices?", "integer|string[]", "what must be on disk [whatever is]")
field("io?", "string", "as in gyre.spec; so are the ones below")
field("buffers?", "integer", "")
field("commit_every?", "integer", "")
field("no_read_check?", "boolean", "")
field("lock_wait?", "number", "")
field("memory_limit?", "integer", "")
field("compute?", "string|string[]", "")
field("link_rate?", "number", "")
field("placement?", "string", "")
field("gradients?", "string", "")
field("allow_inexact?", "boolean", "")
field("endurance?", "number", "")
field("wear_budget?", "integer", "")

part("gyre.round_options", "table", "One round.")
field("groups?", "table[]",
      "parameters of the optimizer for each group [as created]")
field("clip?", "number", "limit of the global norm [none]")
field("loss_scale?", "number", "a power of two [1]")
field("micro_batches?", "integer", "[1]")
field("denominator?", "number", "gradients are divided by it [1]")
field("early?", "boolean",
      "update chunks when their gradients are there; no clip [false]")
field("dynamic_scale?", "boolean", "the store keeps the loss scale [false]")
field("late_clip?", "boolean",
      "compress before the norm is known, clip what comes out [false]")

part("gyre.report", "table", "What a round did.")
field("round", "integer", "attempts so far")
field("step", "integer", "applied steps so far")
field("skipped", "boolean", "gradients were not finite; nothing was changed")
field("committed", "boolean", "the round is committed on disk")
field("norm", "number", "of the average gradient, before the clip")
field("norm_clipped", "number", "after it")
field("clip_coefficient", "number", "1 when nothing was clipped")
field("loss_scale", "number", "of this round")
field("nonfinite?", "string", "first tensor with NaN or infinity")
field("nonfinite_tensors", "integer", "how many have them")
field("gradient_bytes?", "integer",
      "host link, down; this and what follows after finish")
field("parameter_bytes?", "integer", "host link, up")
field("read_bytes?", "integer", "device reads: parameters and slots")
field("write_bytes?", "integer", "device writes")
field("padding_bytes?", "integer", "device traffic of grains and labels")
field("commit_bytes?", "integer", "device writes: record, table, blob")
field("store_ns?", "integer", "from the first read to the end")
field("exposed_ns?", "integer", "the part of it that the script waited")
field("norm_compressed?", "number",
      "norm of what the optimizer got: after clip and compression")
field("ledger?", "gyre.ledger", "bytes of this round")

part("gyre.ledger", "table",
     "Bytes by link, direction and reason; of a round, or since opening.")
field("rounds", "integer", "counted here")
field("elements", "integer", "updated, summed over rounds")
field("gradient_down", "integer", "host link")
field("state_down", "integer", "host link; placement host")
field("parameter_up", "integer", "host link; placement near")
field("gradient_up", "integer", "host link; placement host, spilled")
field("state_up", "integer", "host link; placement host")
field("state_read", "integer", "device")
field("gradient_read", "integer", "device")
field("state_write", "integer", "device")
field("gradient_write", "integer", "device")
field("residual_down", "integer", "committed residuals: link and flash")
field("residual_up", "integer", "read when opened")
field("frame_bytes", "integer", "headers of compressed gradients, on links")
field("padding_read", "integer", "grains, labels, alignment")
field("padding_write", "integer", "")
field("commit_write", "integer", "records, tables, blobs")
field("born_gradient", "integer", "copied whole from or to where they are born")
field("born_payload", "integer", "compressed on the device where they are born")
field("born_leaves", "integer", "sums for norms, from there")
field("born_residual", "integer", "committed, read back or moved, there")
field("host_bytes", "integer", "down and up, as the formulas count")
field("device_read_bytes", "integer", "state and gradients")
field("device_write_bytes", "integer", "state and gradients")
field("flash_bytes", "integer", "everything written to devices")

part("gyre.plan_spec", "table", "An attention and its schedule.")
field("schedule?", "string|table|function", [[
name, { name, parameter = value, ... }, or function(b: gyre.builder, rank,
pass) that writes the ops of one rank ]])
field("name?", "string", "of a schedule that is a function [script]")
field("file?", "string", "a plan in a file instead; no other field")
field("pass?", "string", "forward or backward alone [both]")
field("ranks?", "integer", "[4]")
field("seq?", "integer", "tokens of a sequence [64 a rank]")
field("batch?", "integer", "sequences [1]")
field("heads?", "integer", "of Q [8]")
field("kv_heads?", "integer", "of K and V [heads]")
field("head_dim?", "integer", "of Q and K [64]")
field("v_head_dim?", "integer", "of V and O [head_dim]")
field("dtype?", "string", "f64, f32, bf16 or f16 [bf16]")
field("wire_dtype?", "string", "of partial sums between ranks [f32]")
field("mask?", "string|table", [[
causal, full, or { causal =, window =, documents = { lengths } } [causal] ]])
field("layout?", "string",
      "contiguous, zigzag, striped or documents [zigzag if causal]")
field("drop?", "string", "none, or dead: what no cell needs [none]")

-- ---- the module ------------------------------------------------------------

part("gyre", "module", [[
The module's functions use a context that is made when it is first needed.  A
context made with gyre.context has methods of the same names.]])
field("dry_run", "boolean", "the script was given --dry-run")
field("json_output", "boolean", "it was given --json")
field("quiet", "boolean", "it was given --quiet")
f "create" "path: string, spec: gyre.spec" "gyre.store FAIL" [[
Make a store in a folder and open it.  Space for everything is reserved
first.]]
f "open" "path: string, options?: gyre.open_options" "gyre.store FAIL" [[
Open a store at its last commit, or the one before if that one is damaged.]]
f "open_or_create" [[
path: string, spec: gyre.spec]] "gyre.store, made: boolean FAIL" [[
Open the store that is there, or make it.]]
f "plan" "spec: gyre.spec|gyre.plan_spec" "table|gyre.attention_plan FAIL" [[
For a gyre.spec: memory, disk and traffic of a store, before anything is
allocated.  For a table with schedule or file: the plan of an attention.]]
f "plan_run" "plan: table" "" [[
Declare what a run will need, before it starts: store (a gyre.spec), path,
memory ({ name = bytes }), steps, compute_seconds (of a step), rate ({ read =,
write = } in bytes a second; measured in the store's folder when left out) and
title.  With --dry-run it prints the plan and ends the script; otherwise it
returns at once.  gyre.create and gyre.open raise in a dry run.]]
f "memory" "name: string, bytes: integer" "" [[
Declare memory that the script or a module of it is going to use, for the dry
run.]]
f "options" "declaration: table" "table" [[
Declare the script's options and read them from the global table arg.  Each
entry is { name, type =, default =, help =, min =, max =, choices =,
required = }; types are integer, number, string, path, switch, choice.  Field
usage says what the script does, arguments ("FILE...") lets it take words, too:
they come as a list.  Fields of the result have _ for -.  Mistakes print the
list of options and end the script with 2.]]
f "optimizer" "optimizer: table" "table FAIL" [[
Check { name, parameter = value, ... } against the plugin's table and return
it.  An error lists the valid parameters.]]
f "plugins" "" "table[] FAIL" [[
All plugins that can be found: kind, name, version, summary, licence, path,
parameters.]]
f "plugin" "name: string" "table FAIL" "One of them."
f "import" "path: string, file: string, options?: table" "true FAIL" [[
Take parameters and state by name from a safetensors file into a closed
store.  Option progress is a function(done, total) or a gyre.progress.]]
f "reshard" "path: string, options: table" "true FAIL" [[
Rewrite a closed store for other devices, weights or chunk_elements.]]
f "weigh" "devices: string[], options?: table" "table[] FAIL" [[
Measure folders and block files by a short trial, all at once: read_rate,
write_rate, rate (both in turn) in bytes per second, weight, bytes, direct.
Options: bytes (room on each), seconds.  Block files are only read.]]
f "fsck" "path: string, options?: table" "table FAIL" [[
Check a closed store; options repair and salvage.  The report has chunks,
problems, notes (what a crash left and commits mend), step, previous_whole,
repaired, salvaged and list.]]
f "context" "options?: table" "gyre.context FAIL" [[
A context of its own: plugin_path, instruction_set, trace_records (spans of
each thread; 0: no trace).]]
f "array" "dtype: string, from: integer|table|string" "gyre.array" [[
A new array of n zeros, of the numbers of a list, or of raw bytes.  Types are
f32, f64, bf16, f16, i32, u8.]]
f "progress" "options: table" "gyre.progress" [[
A progress bar with label, total and unit ("B" for bytes): drawn on a terminal,
plain lines otherwise, nothing when quiet.]]
f "json" "value: any, indent?: boolean" "string" [[
Encode.  A table with element 1 is a list, an empty one an object; keys are
sorted, numbers have all their digits, NaN and infinity become null.]]
f "json_decode" "text: string" "any FAIL" "Decode."
f "clock" "" "number" "Seconds of the monotonic clock."
f "version" "" "string" "Version of the library."
f "build" "" "string" "What it was built with, a line for each part."
f "exit" "code?: integer" "" [[
As os.exit(code, true): every handle is closed.]]

part("gyre.context", "object",
     "A context; closing waits for the stores made from it.")
for _, name in ipairs { "create", "open", "open_or_create", "plan",
                        "optimizer", "plugins", "plugin", "import", "reshard",
                        "weigh", "fsck" } do
    for _, known in ipairs(api[#api - 1].functions) do
        if known.name == name then
            f(name)(known.arguments)(known.returns) ("")
        end
    end
end
f "memory" "" "now: integer, peak: integer" "Bytes allocated by the library."
f "instruction_set" "" "string" "The one in use."
f "span" "name: string, category?: string" "gyre.span" [[
Begin a span of the script's own in the trace; category is host, compute,
storage read, storage write or link.]]
f "trace" "" "spans: table[], dropped: integer FAIL" [[
All spans recorded: begin, finish, bytes, thread, thread_name, category,
name.]]
f "write_trace" "path: string" "true FAIL" [[
Write them as Chrome trace events, for Perfetto.]]
f "clear_trace" "" "" "Forget them."
f "close" "" "" ""

part("gyre.store", "object", [[
A store.  A tensor is given by its index from 1 or by its name.  What is not
committed is lost when the store is closed.]])
f "info" "" "table FAIL" [[
round, step, commit, committed_round, committed_step, generation, tensors,
elements, chunks, chunk_elements, padding_bytes, disk_bytes, blob_capacity,
devices, groups, slots, in_place, whole, fell_back, uuid, path, optimizer,
optimizer_version, variant, io, loss_scale, slot_names, device_paths, codecs,
compressor (name, version, residual, parameters), spill, exact, seed, written.]]
f "tensors" "" "table[] FAIL" [[
name, shape, elements, group, frozen and step of each.]]
f "tensor" "tensor: integer|string" "table FAIL" "The same of one."
f "digest" "" "string FAIL" [[
Digest of names, shapes and parameters, the same for any layout.]]
f "blob" "" "string?" "The blob of the last commit."
f "read" [[
tensor: integer|string, slot?: integer|string,
first?: integer, count?: integer, dtype?: string]] "gyre.array FAIL" [[
Elements of the parameter, or of a state slot by name or number.]]
f "bind" "tensor: integer|string, array: gyre.array?" "true FAIL" [[
Updated values of the tensor go into this array, in its dtype; nil ends it.  The
store keeps the array alive.]]
f "pull" "" "true FAIL" "Fill every bound array now."
f "begin" "options?: gyre.round_options" "gyre.round FAIL" "Open a round."
f "commit" "blob?: string" "true FAIL" "Commit between rounds."
f "ledger" "" "gyre.ledger FAIL" "Sum of all rounds since opening."
f "wear" "" "table FAIL" [[
written, budget, endurance, bytes_per_round, rounds_left and
budget_rounds_left.]]
f "reshard" "options: table" "true FAIL" [[
Go on with other devices, weights or chunk_elements, between two rounds:
what is not committed is committed, the store is closed, resharded and opened
with the other options, as gyre.open has them.  Bound arrays stay bound.  After
a failure the store is as before, or closed when the message says so.]]
f "export" "file: string, options?: table" "true FAIL" [[
Write a safetensors file; options parameters_only and progress.]]
f "close" "" "" ""

part("gyre.attention_plan", "object", [[
The plans of an attention, one for each pass.  Ranks, ops and chunks are counted
from 0.]])
f "bytes" "" "table FAIL" [[
forward and backward: total (mean over ranks, sent), memory (largest rank) and
phases, each with sent and received, each with mean and max.]]
f "prove" "" "table FAIL" [[
ok, ops, peak_bytes, cast_depth, dead_bytes; when not ok pass, rank, op,
q_chunk, kv_chunk, head and reason.]]
f "run" "options?: table" "table FAIL" [[
Run it on threads and compare with the definition of attention: ok, ledger_ok,
and tensors by name with ok, max_abs_error, max_rel_error and bound.  Options
kernel (count, f64, f32, bf16, opencl, cuda; by dtype), seed, delay (seconds, at
most, before everything), workers (threads a rank; cores over ranks).]]
f "text" "pass?: string" "string FAIL" "All of it, as gyre-plan(5) says."
f "save" "path: string, options?: table" "true FAIL" [[
Write a file; options pass and binary.]]
f "show" "rank: integer, pass?: string" "string FAIL" "Its ops, a line each."
f "close" "" "" ""

part("gyre.builder", "object", [[
Writes the ops of one rank, while the function of a schedule runs.  Rows are
sets of chunks; a view is storage, whole or in part.  Ids are integers.]])
f "problem" "" "table" [[
ranks, batch, heads, kv_heads, head_dim, v_head_dim, dtype, wire_dtype,
sum_dtype, seq, kv_seq.]]
f "owned" "side: string, rank: integer" "rows: integer" [[
The rows of a rank; the side is Q or KV.]]
f "rows" "side: string, chunks: integer[]" "rows: integer" ""
f "join" "rows: integer, others: integer" "rows: integer" ""
f "tokens" "rows: integer" "integer" "How many tokens they have."
f "slot" "kind: string, rows: integer, options?: table" "view: integer" [[
New storage for a value, Q, KV, O, DO, ST, DQ, DKV or a sum O*, DQ*, DKV*; gives
the view of all of it.  Options external (the user's own), saved (for backward),
dtype, heads ({ from, to }), reuse (a view whose storage is taken over).]]
f "view" "view: integer, part: table" "view: integer" [[
A part of its slot: rows, heads ({ from, to }), plane (of ST: lse, delta,
both).]]
f "begin" "phase: string, lane?: integer, pattern?: string" "" [[
Open a group of transfers on a lane [1]; patterns are none, a2a, ag, rs.]]
f "put" "view: integer, peer: integer, channel?: integer" "" "Send it."
f "get" "view: integer, peer: integer, channel?: integer" "" "Receive it."
f "end_" "" "" "Close the group."
f "att" "q: integer, kv: integer, o: integer, lane?: integer" "" [[
Attend: every pair of rows(q) x rows(kv) into the sum O*.]]
f "grd" [[
q: integer, d_o: integer, st: integer, kv: integer,
dq: integer?, dkv: integer?, lane?: integer]] "" [[
Gradients of the same pairs into the sums DQ*, DKV*; either may be nil.]]
f "red" "from: integer, to: integer, lane?: integer" "" "Add a sum to another."
f "cpy" "from: integer, to: integer, lane?: integer" "" [[
Copy; of a sum, also to another dtype.]]
f "fin" "from: integer, to: integer, st?: integer, lane?: integer" "" [[
Normalise and cast a complete sum; ST gets the log-sum-exp.]]
f "dlt" "o: integer, d_o: integer, st: integer, lane?: integer" "" [[
Write rowsum(DO * O) into the plane delta of ST.]]
f "refuse" "text: string" "" "Refuse to make the plan, with this message."

part("gyre.round", "object", [[
A round.  Closing one that has not begun to update gives it up.]])
f "gradient" [[
tensor: integer|string, array: gyre.array,
first?: integer, count?: integer]] "true FAIL" [[
Give a piece: element 1 of the array is element first of the tensor.  Copied
before it returns.]]
f "absent" "tensor: integer|string" "true FAIL" [[
The tensor has no gradient in this micro-batch.]]
f "release" "tensor: integer|string" "true FAIL" [[
The script reads its bound array no more; an early update may fill it.]]
f "next" "" "true FAIL" "End a micro-batch, begin the next."
f "update" "" "gyre.report FAIL" [[
All gradients are in: take the norm, clip, start.  Returns while chunks
update.]]
f "wait" "tensor: integer|string" "true FAIL" [[
Wait until its bound array has the new values.]]
f "finish" "blob?: string" "gyre.report FAIL" [[
Wait for all, and commit with the blob.]]
f "abort" "" "true FAIL" [[
Give the round up, as if it had not begun; before update only.]]
f "close" "" "" ""

part("gyre.array", "object", [[
Numbers in memory, shared with other modules (gyre/lua.h).  a[i] from 1 to #a;
integers for i32 and u8.]])
field("dtype", "string", "the type of its elements")
f "table" "first?: integer, count?: integer" "table" "Elements as a list."
f "string" "first?: integer, count?: integer" "string" "Their raw bytes."
f "fill" "value: number, first?: integer, count?: integer" "gyre.array" [[
Set all to one value.]]
f "set" "from: table|string|gyre.array, first?: integer" "gyre.array" [[
Set from a list, raw bytes or an array.]]
f "view" "first?: integer, count?: integer" "gyre.array" [[
A window on the same memory.]]
f "copy" "" "gyre.array" "A new array with the same elements."

part("gyre.progress", "object", "A progress bar.")
f "update" "done: number, note?: string, total?: number" "" [[
Show that so much is done.]]
f "add" "n?: number, note?: string" "" "Add n [1] to what is done."
f "print" "text: string" "" "Print a line above the bar."
f "finish" "" "" "Leave the last state on the terminal."
f "close" "" "" ""

part("gyre.span", "object", "A span of the trace.")
f "close" "bytes?: integer" "" "End it."

return api
