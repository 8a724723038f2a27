-- SPDX-License-Identifier: Apache-2.0
-- A compressor's reference formula (arg[1]) with settings NAME=VALUE (the other
-- arguments) over numbers on stdin, one a line; what it keeps on stdout.
local set, x = {}, {}
for i = 2, #arg do
    local name, value = arg[i]:match("([^=]+)=(.*)")
    set[name] = tonumber(value) or value
end
for line in io.lines() do
    x[#x + 1] = tonumber(line)
end
for _, kept in ipairs(dofile(arg[1])(x, set)) do
    print(string.format("%a", kept))
end
