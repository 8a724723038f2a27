-- SPDX-License-Identifier: Apache-2.0
-- Ends a script that cannot go on with one line that says why.  What is open is
-- closed: every `local x <close>` and every store.
--
--     local fail = require "fail"
--     local info = fail.check(store:info())         -- nil and why
--     local loss = fail.try(model.loss, model, ...) -- raises "gpt: why"
--     fail.now("no space")                          -- exit code 1
--     fail.usage("--a needs --b")                   -- exit code 2

local gyre = require "gyre"

local fail = {}
local name = arg[0]:match("[^/]*$")
local told -- the model whose other processes hear of a failure

-- A line of this script on standard error.
function fail.say(text)
    io.stderr:write(name, ": ", text, "\n")
end

-- From now on a failure also ends the other processes of this model.
function fail.tell(model)
    told = model
end

function fail.now(text)
    fail.say(text)
    if told then
        told:give_up(text)
    end
    gyre.exit(1)
end

function fail.usage(text)
    fail.say(text)
    gyre.exit(2)
end

-- The value, or the end with what came instead.
function fail.check(value, message)
    if value == nil then
        fail.now(message)
    end
    return value
end

-- What f returns; what the module gpt raises is the end, without a traceback.
function fail.try(f, ...)
    local good, value, more = pcall(f, ...)
    if not good then
        local text = tostring(value):gsub("^[^\n]-:%d+: ", "")
        if not text:match("^gpt: ") then
            error(value, 0)
        end
        fail.now(text)
    end
    return value, more
end

return fail
