-- SPDX-License-Identifier: Apache-2.0
-- Arrays: every dtype there and back, ranges, views, misuse.

local gyre = require "gyre"
local tap = require "tap"

for _, dtype in ipairs { "f32", "f64", "bf16", "f16", "i32", "u8" } do
    local a = gyre.array(dtype, 5)
    tap.equal(#a, 5, dtype .. ": length")
    tap.equal(a.dtype, dtype, dtype .. ": its name")
    tap.ok(a[1] == 0 and a[5] == 0, dtype .. ": begins as zeros")
    a[3] = 7
    tap.ok(a[3] == 7, dtype .. ": keeps a small number")
    tap.equal(a[0], nil, dtype .. ": nothing before the first")
    tap.equal(a[6], nil, dtype .. ": nothing after the last")
    tap.raises("outside this array", dtype .. ": write past the end",
               function() a[6] = 1 end)
    tap.ok(gyre.array(dtype, a:string())[3] == 7, dtype .. ": by string")
    tap.ok(gyre.array(dtype, a:table())[3] == 7, dtype .. ": by table")
end

-- 16-bit floats against IEEE 754 and the definition of bfloat16.
local function bits(dtype, x)
    return (string.unpack("<I2", gyre.array(dtype, { x }):string()))
end
for _, case in ipairs {
    { "f16", 1, 0x3c00 }, { "f16", -2, 0xc000 }, { "f16", 65504, 0x7bff },
    { "f16", 65519, 0x7bff }, { "f16", 65520, 0x7c00 },
    { "f16", 2 ^ -24, 1 }, { "f16", 2 ^ -25, 0 }, { "f16", 3 * 2 ^ -25, 2 },
    { "f16", 2 ^ -14, 0x400 }, { "f16", 2 ^ -14 - 2 ^ -24, 0x3ff },
    { "f16", 1 + 2 ^ -11, 0x3c00 }, { "f16", 1 + 3 * 2 ^ -11, 0x3c02 },
    { "f16", math.huge, 0x7c00 }, { "f16", -0.0, 0x8000 },
    { "bf16", 1, 0x3f80 }, { "bf16", 1 + 2 ^ -8, 0x3f80 },
    { "bf16", 1 + 3 * 2 ^ -8, 0x3f82 }, { "bf16", -math.huge, 0xff80 },
    { "bf16", 3.4028234663852886e38, 0x7f80 },
} do
    tap.equal(bits(case[1], case[2]), case[3],
              ("%s of %a"):format(case[1], case[2]))
end

-- Every f16 but NaN goes to f32 and back to itself.
local halves = {}
for i = 0, 65535 do
    if i & 0x7c00 ~= 0x7c00 or i & 0x3ff == 0 then
        halves[#halves + 1] = string.pack("<I2", i)
    end
end
local raw = table.concat(halves)
tap.ok(gyre.array("f16", gyre.array("f16", raw):table()):string() == raw,
       "every f16 survives f32")
for _, dtype in ipairs { "f16", "bf16" } do
    local nan = gyre.array(dtype, { 0 / 0 })[1]
    tap.ok(nan ~= nan, "NaN stays NaN in " .. dtype)
end

local a = gyre.array("f32", { 1, 2, 3, 4, 5, 6 })
local v = a:view(3, 2)
tap.ok(#v == 2 and v[1] == 3 and v[2] == 4, "a view shows its range")
v[1] = 30
tap.ok(a[3] == 30, "a view writes through")
local w = v:view(2)
a, v = nil, nil
collectgarbage()
tap.ok(w[1] == 4, "a view of a view keeps the memory alive")
tap.ok(w:copy()[1] == 4, "copy")
local b = gyre.array("f32", 4):fill(2):set({ 7, 8 }, 2)
tap.ok(b[1] == 2 and b[2] == 7 and b[3] == 8 and b[4] == 2, "fill, set")
b:set(gyre.array("f32", { 1, 1, 1, 1 }))
tap.ok(b[4] == 1, "set from an array")
tap.ok(#b:table(2, 2) == 2 and #b:string(4) == 4, "parts")
tap.equal(tostring(b), "gyre.array f32[4]", "tostring")

tap.raises("past the end", "set past the end", b.set, b, { 1, 2, 3 }, 3)
tap.raises("another dtype", "set of another dtype", b.set, b,
           gyre.array("u8", 1))
tap.raises("outside u8", "256 is no u8", function()
    gyre.array("u8", 1)[1] = 256
end)
tap.raises("outside i32", "2^31 is no i32", function()
    gyre.array("i32", 1)[1] = 1 << 31
end)
tap.raises("number expected", "text is no element", function()
    gyre.array("f32", 1)[1] = "x"
end)
tap.raises("no field 'nothing'", "unknown field", function()
    return b.nothing
end)
tap.raises("f33", "unknown dtype", gyre.array, "f33", 1)
tap.raises("cannot have", "below zero", gyre.array, "f32", -1)
tap.raises("cannot have", "absurd size", gyre.array, "f32", 1 << 62)
tap.raises("no multiple", "string of odd length", gyre.array, "f32", "abc")
tap.raises("gyre.array", "a table is not an array", b.view, {}, 1)
tap.equal(#gyre.array("f32", 0), 0, "an empty array")
tap.done()
