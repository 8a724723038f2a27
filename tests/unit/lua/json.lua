-- SPDX-License-Identifier: Apache-2.0
-- JSON: exact numbers, order, what it refuses.

local gyre = require "gyre"
local tap = require "tap"

tap.equal(gyre.json { b = 1, a = { 1, 2, "x" } },
          '{"a": [1, 2, "x"], "b": 1}', "keys are sorted")
tap.equal(gyre.json(0.1), "0.10000000000000001", "17 digits")
tap.equal(gyre.json(3), "3", "an integer")
tap.equal(gyre.json(3.0), "3.0", "a float stays one")
tap.equal(gyre.json { x = 0 / 0, y = math.huge }, '{"x": null, "y": null}',
          "NaN and infinity become null")
tap.equal(gyre.json {}, "{}", "an empty table is an object")
tap.equal(gyre.json(nil), "null", "nil")
tap.equal(gyre.json("a\0b"), '"a\\u0000b"', "a zero byte")
for _, x in ipairs { 1, -5, math.maxinteger, math.mininteger, 1e300, 0.1,
                     2 ^ -1074, "text", true, false } do
    tap.equal(gyre.json_decode(gyre.json(x)), x,
              "there and back: " .. tostring(x))
end
local t = gyre.json_decode('{"a": [1, {"b": null}], "c": "\\u00e9"}')
tap.ok(t.a[1] == 1 and t.a[2].b == nil and t.c == "\u{e9}", "nested")
tap.fails("line 1", "FORMAT", "broken text", gyre.json_decode("{"))
tap.fails("JSON", "FORMAT", "empty text", gyre.json_decode(""))
tap.raises("function", "a function has no form", gyre.json, print)
tap.raises("key", "a number as key", gyre.json, { [1.5] = 1 })
tap.raises("UTF%-8", "bytes that are no text", gyre.json, "\xff")
local loop = {}
loop[1] = loop
tap.raises("deeper", "a table in itself", gyre.json, loop)
local deep = string.rep("[", 100000) .. string.rep("]", 100000)
tap.fails("JSON", "FORMAT", "nesting beyond reason", gyre.json_decode(deep))
tap.done()
