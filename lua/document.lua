-- SPDX-License-Identifier: Apache-2.0
-- Make the manual page or the editor annotations of the module from api.lua.
--
--     lua5.4 document.lua man|meta >FILE

local folder = arg[0]:match("^(.*)/[^/]*$") or "."
local api = dofile(folder .. "/api.lua")

-- "name?: type" -> name, type, may be left out
local function split(text)
    local name, optional, kind = text:match("^([%w_]+)(%??): (.+)$")
    return name or "", kind or text, optional == "?"
end

local function list(text)
    local items = {}
    for item in text:gmatch("[^,]+") do
        items[#items + 1] = item:match("^%s*(.-)%s*$")
    end
    return items
end

-- Returns without the mark of failure, and whether it was there.
local function returns_of(entry)
    local text, fail = entry.returns:gsub("%s*FAIL$", "")
    return text, fail > 0
end

local function flat(text)
    return (text:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", ""))
end

-- ---- annotations ------------------------------------------------------------

local function meta_fields(part)
    print("---@class " .. part.name)
    for _, field in ipairs(part.fields) do
        print(flat(("---@field %s %s %s"):format(field.name, field.kind,
                                                 field.text)))
    end
end

local function meta_function(part, entry, variable)
    local names = {}
    if entry.text ~= "" then
        print("--- " .. flat(entry.text))
    end
    for i, item in ipairs(list(entry.arguments)) do
        local name, kind, optional = split(item)
        names[i] = name
        print(("---@param %s%s %s"):format(name, optional and "?" or "", kind))
    end
    local text, fail = returns_of(entry)
    for _, item in ipairs(list(text)) do
        local name, kind = split(item)
        print(flat(("---@return %s%s %s"):format(kind, fail and "|nil" or "",
                                                 name)))
    end
    if fail then
        print("---@return string? message\n---@return string? code")
    end
    print(("function %s%s%s(%s) end\n"):format(
        variable, part.kind == "object" and ":" or ".", entry.name,
        table.concat(names, ", ")))
end

local function meta()
    print("---@meta gyre")
    print("-- SPDX-License-Identifier: Apache-2.0")
    print("-- For editors (LuaLS); made from lua/api.lua, not to be run.\n")
    print('error("gyre.meta.lua is for editors")\n')
    for _, part in ipairs(api) do
        local variable = part.name:gsub("%.", "_")
        print("--- " .. flat(part.text))
        meta_fields(part)
        if part.kind ~= "table" then
            print(("local %s = {}\n"):format(variable))
        else
            print("")
        end
        for _, entry in ipairs(part.functions) do
            meta_function(part, entry, variable)
        end
    end
    print("return gyre")
end

-- ---- manual ----------------------------------------------------------------

-- Text for mdoc: a sentence begins a line, no line is longer than 78, and none
-- begins with a control character.
local function roff(text)
    local lines, line = {}, ""
    for word in flat(text):gsub("\\", "\\e"):gmatch("%S+") do
        local ends = line:find("[.?!]$") and word:find("^%u")
        if line ~= "" and (ends or #line + 1 + #word > 78) then
            lines[#lines + 1] = line
            line = ""
        end
        line = line == "" and word:gsub("^[.']", "\\&%0") or
            line .. " " .. word
    end
    lines[#lines + 1] = line
    return table.concat(lines, "\n")
end

local function man_function(part, entry)
    local names = {}
    for i, item in ipairs(list(entry.arguments)) do
        local name, _, optional = split(item)
        names[i] = optional and "[" .. name .. "]" or name
    end
    local text, fail = returns_of(entry)
    local gives = {}
    for i, item in ipairs(list(text)) do
        local name, kind = split(item)
        gives[i] = name ~= "" and name or kind
    end
    local prefix = part.kind == "module" and "gyre." or
        part.name:match("[^.]+$") .. ":"
    print((".It %s%s(%s)%s%s"):format(
        prefix, entry.name, table.concat(names, ", "),
        #gives > 0 and " \\(-> " .. table.concat(gives, ", ") or "",
        fail and " | nil, message, code" or ""))
    if entry.text ~= "" then
        print(roff(entry.text))
    end
end

local function man()
    print([[
.\" SPDX-License-Identifier: Apache-2.0
.\" Made from lua/api.lua.
.Dd November 29, 2026
.Dt GYRE-LUA 3
.Os
.Sh NAME
.Nm gyre-lua
.Nd the Lua module gyre
.Sh SYNOPSIS
.Dl local gyre = require \(dqgyre\(dq
.Sh DESCRIPTION
The module is in place in scripts of
.Xr gyre-run 1 ,
and a shared module for the stock interpreter of Lua 5.4.
.Pp
Handles have
.Va __close :
.Ql local store <close> = gyre.open(path)
ends with its block; closing twice is harmless.
Failures from outside (input and output, space, a store in use or damaged,
a missing plugin) return nil, a message, and the name of the status:
.Ql NOT_FOUND ,
.Ql BUSY ,
.Ql CORRUPT ,
.Ql NO_SPACE
and so on.
Misuse raises an error at the script's line.]])
    for _, part in ipairs(api) do
        print((".Ss %s"):format(part.name))
        print(roff(part.text))
        if #part.fields + #part.functions > 0 then
            print(".Bl -tag -width Ds")
        end
        for _, field in ipairs(part.fields) do
            print((".It %s: %s"):format(field.name, field.kind))
            print(field.text ~= "" and roff(field.text) or "The same.")
        end
        for _, entry in ipairs(part.functions) do
            man_function(part, entry)
        end
        if #part.fields + #part.functions > 0 then
            print(".El")
        end
    end
    print([[
.Sh EXAMPLES
One step of a model of one tensor:
.Bd -literal -offset indent
local gyre = require "gyre"
local w = gyre.array("f32", 1000)
local store <close> = assert(gyre.open_or_create("run1", {
    tensors = { { "w", shape = { 1000 }, data = w } },
    optimizer = { "adamw", lr = 1e-3 } }))
assert(store:bind("w", w))
local round <close> = assert(store:begin { clip = 1 })
assert(round:gradient("w", gyre.array("f32", 1000):fill(0.1)))
local report = assert(round:finish("anything"))
print(report.step, report.norm)
.Ed
.Sh SEE ALSO
.Xr gyre 1 ,
.Xr gyre-run 1 ,
.Xr gyre-store 1]])
end

if arg[1] == "man" then
    man()
elseif arg[1] == "meta" then
    meta()
else
    io.stderr:write("document.lua: man or meta?\n")
    os.exit(2)
end
