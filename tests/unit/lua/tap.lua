-- SPDX-License-Identifier: Apache-2.0
-- The few words that the Lua tests are written in; output is TAP.

local tap = { count = 0, failed = 0 }

local function line(good, name, why)
    tap.count = tap.count + 1
    if not good then
        tap.failed = tap.failed + 1
    end
    print(("%sok %d - %s"):format(good and "" or "not ", tap.count, name))
    if not good and why then
        print("# " .. tostring(why):gsub("\n", "\n# "))
    end
end

function tap.ok(value, name, why)
    line(value and true or false, name, why)
end

function tap.equal(got, wanted, name)
    line(got == wanted and math.type(got) == math.type(wanted), name,
         ("got %s, wanted %s"):format(got, wanted))
end

-- f(...) raises, and the text matches the pattern.
function tap.raises(pattern, name, f, ...)
    local good, text = pcall(f, ...)
    line(not good and tostring(text):find(pattern) ~= nil, name,
         good and "no error" or text)
end

-- The values are nil, a text that matches, and this code.
function tap.fails(pattern, code, name, ...)
    local value, text, got = ...
    line(value == nil and tostring(text):find(pattern) ~= nil and got == code,
         name, ("%s, %s, %s"):format(value, text, got))
end

function tap.done()
    print("1.." .. tap.count)
    os.exit(tap.failed == 0 and 0 or 1, true)
end

return tap
