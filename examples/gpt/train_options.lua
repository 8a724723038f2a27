-- SPDX-License-Identifier: Apache-2.0
-- What the command line of train.lua says, as a table: --micro-batches 2 is
-- micro_batches = 2.  --help prints what stands here.

local gyre = require "gyre"
local fail = require "fail"

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

for _, name in ipairs { "ranks", "backend" } do
    if not opt.schedule and opt[name] and opt[name] ~= "threads" then
        fail.usage(("--%s needs --schedule NAME"):format(name))
    end
end
if opt.early and opt.clip ~= 0 then
    fail.usage("--early needs --clip 0: the norm is known after the last " ..
               "gradient only")
end

return opt
