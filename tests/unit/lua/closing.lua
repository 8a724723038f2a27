-- SPDX-License-Identifier: Apache-2.0
-- Ends in every order: scripts that fail, exit or forget to close.  Each case
-- is a state of its own, so it runs in a process of its own.

local tap = require "tap"

local dir = assert(arg[1], "a folder for the stores")
local interpreter = arg[-1] == "gyre run" and
    os.getenv("GYRE") .. " run" or arg[-1]

local head = [[
local gyre = require "gyre"
local function spec()
    return { tensors = { { "w", shape = { 40000 } } }, optimizer = "sgd" }
end
]]

local number = 0
local function case(name, wanted, text)
    number = number + 1
    local script = ("%s/case%d.lua"):format(dir, number)
    local file = assert(io.open(script, "w"))
    file:write(head, text)
    file:close()
    local command = ("%s %s %s/s%d 2>&1"):format(interpreter, script, dir,
                                                 number)
    local pipe = assert(io.popen(command))
    local out = pipe:read("a")
    local _, kind, code = pipe:close()
    tap.ok(kind == "exit" and code == wanted, name,
           ("%s %s: %s"):format(kind, code, out))
    return out
end

case("a store that nobody closes", 0, [[
store = gyre.create(arg[1], spec())
]])
case("a round that nobody ends", 0, [[
store = gyre.create(arg[1], spec())
round = store:begin()
round:gradient(1, gyre.array("f32", 40000))
]])
case("a round left while it updates", 0, [[
store = gyre.create(arg[1], spec())
a = gyre.array("f32", 40000)
store:bind(1, a)
round = store:begin()
round:gradient(1, gyre.array("f32", 40000))
round:update()
]])
case("an error in the middle of a round", 1, [[
local store <close> = gyre.create(arg[1], spec())
local round <close> = store:begin()
error("on purpose")
]])
case("an exit in the middle of a round", 3, [[
local store <close> = gyre.create(arg[1], spec())
local round <close> = store:begin()
round:gradient(1, gyre.array("f32", 40000))
round:update()
gyre.exit(3)
]])
case("an exit from a coroutine, past a pcall", 4, [[
store = gyre.create(arg[1], spec())
pcall(coroutine.wrap(function() gyre.exit(4) end))
]])
case("the context closed first", 0, [[
context = gyre.context()
store = context:create(arg[1], spec())
context:close()
round = store:begin()
]])
case("a step is not lost by a later end", 0, [[
do
    local store <close> = gyre.create(arg[1], spec())
    local round = store:begin()
    round:gradient(1, gyre.array("f32", 40000))
    round:finish("one")
    round = store:begin()
    round:gradient(1, gyre.array("f32", 40000))
    round:update()
end
local store <close> = gyre.open(arg[1])
assert(store:info().step == 1 and store:blob() == "one")
]])
local out = case("the script's line is named", 1, [[
local function deep()
    local store = gyre.create(arg[1], spec())
    store:begin { nonsense = 1 }
    return store
end
local s = deep()
]])
tap.ok(out:find("case%d+%.lua:7: a round has no field 'nonsense'"),
       "with its number", out)
tap.done()
