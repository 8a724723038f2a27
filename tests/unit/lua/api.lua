-- SPDX-License-Identifier: Apache-2.0
-- What is written about the module is what it has, and the other way round.

local gyre = require "gyre"
local tap = require "tap"

local folder = arg[0]:match("^(.*)/tests/unit/lua/[^/]*$")
local api = dofile(folder .. "/lua/api.lua")
local registry = debug.getregistry()

-- The functions that an object has.
local function methods_of(name)
    local meta = registry[name]
    if meta and meta.__methods then
        return meta.__methods
    end
    return meta and meta.__index
end

for _, part in ipairs(api) do
    if part.kind ~= "table" then
        local has = part.kind == "module" and gyre or methods_of(part.name)
        tap.ok(type(has) == "table", part.name .. " is there")
        local written = {}
        for _, entry in ipairs(part.functions) do
            written[entry.name] = true
            tap.ok(type(has[entry.name]) == "function",
                   part.name .. ": " .. entry.name .. " is there")
        end
        for _, field in ipairs(part.fields) do
            written[field.name] = true
        end
        for name in pairs(has) do
            tap.ok(written[name], part.name .. ": " .. name .. " is written of")
        end
    end
end
tap.done()
