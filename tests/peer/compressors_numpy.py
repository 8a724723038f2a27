# SPDX-License-Identifier: Apache-2.0
"""Every compressor against its mathematical definition, in f64.

The wire block is taken apart here, by the drawing in registry/compressor.h and
the layouts that the plugins' kernels state, and decoded by the formulas below;
nothing of Gyre's code is used.  Checked per codec:

    topk       the kept are the sorted head (ties: lowest place), so that all
               above tau are kept, none below, and k in number; values as they
               are, or rounded to NumPy's half at a power of two
    quantize   levels by the formulas; nearest: |x - D| at most half a gap,
               stochastic: D is a neighbour of x, and unbiased
    fp8        the nearest of all values that the format has, even for ties
               (and torch's cast to the same format, where torch has it)
    sign       signs, and the mean magnitude to the last place
    lua        the plugin's reference formula (name.ref.lua), where there is Lua:
               the same but for a few quantised to the other neighbour

    all        decoded == parsed, x - decoded == left out, sum of squares

Unbiased: DRAWS draws of one x between two levels give the upper one a Binomial
count.  |z| must be below Z = 4.5: false alarms 7 in a million for each of some
hundred tests, and the seeds are fixed.  Neighbouring draws, next steps, other
tensors and other seeds must be uncorrelated by the same measure.
"""
import os
import shutil
import struct
import subprocess
import sys

import numpy as np

try:
    import torch
    FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
except (ImportError, AttributeError):
    torch, FP8 = None, None

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("GYRE_TOP_BUILD", ".")
GRAIN = 1024
DRAWS = 100_000
Z = 4.5
CHOICES = {"scope": ["block", "global"], "values": ["f32", "f16"],
           "indices": ["u32", "u16"], "map": ["linear", "dynamic"],
           "rounding": ["nearest", "stochastic"], "format": ["e4m3", "e5m2"]}
DEFAULTS = {
    "topk": {"ratio": 0.01, "scope": "block", "block": 1024, "values": "f32",
             "indices": "u32"},
    "quantize": {"bits": 8, "map": "linear", "rounding": "nearest",
                 "block": 256},
    "fp8": {"format": "e4m3", "block": 256},
    "sign": {"block": 1024}}

count = failed = 0


def ok(good, text):
    global count, failed
    count += 1
    failed += not good
    print(("ok" if good else "not ok") + f" {count} - {text}", flush=True)


# ---- the driver -----------------------------------------------------------

driver = subprocess.Popen([os.path.join(BUILD, "tests/peer/codec_driver")],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def take(size):
    data = driver.stdout.read(size)
    if len(data) != size:
        print("Bail out! the driver ended")
        sys.exit(99)
    return data


def compress(name, settings, x, seed=1, step=1, tensor="w", index=0):
    text = f"compressor {name}\n"
    for key, value in settings.items():
        if key in CHOICES:
            value = CHOICES[key].index(value)
        text += f"set {key} {value!r}\n"
    text += (f"tensor {tensor}\nseed {seed}\nstep {step}\nindex {index}\n"
             f"elements {len(x)}\ngo\n")
    driver.stdin.write(text.encode() + x.astype("<f4").tobytes())
    driver.stdin.flush()
    size = struct.unpack("<Q", take(8))[0]
    return {"block": take(size),
            "out": np.frombuffer(take(4 * len(x)), "<f4"),
            "left": np.frombuffer(take(4 * len(x)), "<f4"),
            "squares": struct.unpack("<d", take(8))[0]}


# ---- the wire block -------------------------------------------------------

def payloads(block, n, variable, fixed):
    """The payload of each grain, with its element count."""
    magic, _, flags, _, elements, body = struct.unpack_from("<IHHQQQ", block)
    assert magic == int.from_bytes(b"GYW1", "little")
    assert elements == n and flags == variable and len(block) == 40 + body
    grains = [min(GRAIN, n - at) for at in range(0, n, GRAIN)]
    at = 40
    if variable:
        ends = np.frombuffer(block, "<u4", len(grains), 40)
        at += 4 * len(grains)
    else:
        ends = np.cumsum([fixed(m) for m in grains])
    begin, out = 0, []
    for m, end in zip(grains, ends):
        out.append((m, block[at + begin:at + int(end)]))
        begin = int(end)
    assert len(block) == (at + begin + 7) // 8 * 8
    return out


def round4(size):
    return (size + 3) // 4 * 4


def blocks_of(m, block):
    return [(at, min(block, m - at)) for at in range(0, m, block)]


# ---- topk -----------------------------------------------------------------

def part(ratio, n):
    return max(1, int(np.floor(ratio * n)))


def head(x, k):
    """Places of the k largest |x|, lowest place first among equals."""
    order = np.lexsort((np.arange(len(x)), -np.abs(x.astype(np.float64))))
    return np.sort(order[:k])


def half_at(values, exponent):
    y = values.astype(np.float64) * 2.0 ** -exponent
    y = np.clip(y, -65504, 65504)
    return y.astype(np.float16).astype(np.float64) * 2.0 ** exponent


def topk_kept(s, x):
    """What the definition keeps, block by block."""
    kept = np.zeros(len(x))
    if s["scope"] == "global":
        ranges = [(0, len(x))]
    else:
        ranges = blocks_of(len(x), s["block"])
    for at, m in ranges:
        places = at + head(x[at:at + m], part(s["ratio"], m))
        kept[places] = x[places]
    return kept


def topk_parse(s, m, data, variable):
    """Entries of a grain: places, values, exponents of the scales."""
    wide, narrow = s["indices"] == "u32", s["values"] == "f16"
    block = GRAIN if variable else s["block"]
    counts = [part(s["ratio"], b) for _, b in blocks_of(m, block)]
    scales = (1 if variable else len(counts)) if narrow else 0
    entry = (4 if wide else 2) + (2 if narrow else 4)
    if variable:
        counts = [(len(data) - scales) // entry if data else 0]
    total = sum(counts)
    index_at = 0 if wide else total * (2 if narrow else 4)
    value_at = 4 * total if wide else 0
    index = np.frombuffer(data, "<u4" if wide else "<u2", total, index_at)
    value = np.frombuffer(data, "<f2" if narrow else "<f4", total, value_at)
    places = index + np.repeat(np.arange(len(counts)) * block, counts)
    value = value.astype(np.float64)
    exponent = np.zeros(total)
    if narrow and total:
        scale = np.frombuffer(data, "i1", scales, entry * total)
        exponent = np.repeat(scale, counts).astype(np.float64)
        value = value * 2.0 ** exponent
    return places.astype(np.int64), value, exponent


def topk_bytes(s):
    def size(m):
        counts = [part(s["ratio"], b) for _, b in blocks_of(m, s["block"])]
        entry = ((4 if s["indices"] == "u32" else 2)
                 + (2 if s["values"] == "f16" else 4))
        return round4(sum(counts) * entry
                      + (len(counts) if s["values"] == "f16" else 0))
    return size


def topk_check(s, x, r):
    variable = s["scope"] == "global"
    parsed = np.zeros(len(x))
    exponent = np.zeros(len(x))
    entries, at, ascending = 0, 0, True
    for m, data in payloads(r["block"], len(x), variable, topk_bytes(s)):
        places, value, e = topk_parse(s, m, data, variable)
        ascending &= bool(np.all(np.diff(places) > 0))
        parsed[at + places] = value
        exponent[at + places] = e
        entries += len(places)
        at += m
    want = topk_kept(s, x)
    if s["values"] == "f16":
        want = np.where(want != 0, half_at(want, exponent), 0.0)
    good = np.array_equal(parsed, want) and ascending
    if variable:
        k = part(s["ratio"], len(x))
        magnitude = np.abs(x.astype(np.float64))
        tau = np.sort(magnitude)[-k]
        chosen = topk_kept(s, x) != 0
        good &= entries == k
        good &= bool(np.all(chosen[(magnitude > tau) & (magnitude > 0)]))
        good &= not np.any(chosen[magnitude < tau])
    return good, parsed


# ---- quantize -------------------------------------------------------------

def dynamic_table(b):
    """Levels by the formula: m = (leading zeros e, then a one, then k)."""
    out = [0.0]
    for m in range(1, 2 ** b):
        f = m.bit_length() - 1
        e, k = b - 1 - f, m - 2 ** f
        out.append(4.0 ** -e * (1 + 3 * (2 * k + 1) / 2 ** (f + 1)) / 4)
    out[-1] = 1.0
    return np.array(out)


def quantize_levels(s):
    if s["map"] == "dynamic":
        return dynamic_table(s["bits"] - 1)
    top = 2 ** (s["bits"] - 1) - 1
    return np.arange(top + 1) / top


def quantize_bytes(s):
    def size(m):
        codes = m if s["bits"] == 8 else (m + 1) // 2
        return 4 * len(blocks_of(m, s["block"])) + round4(codes)
    return size


def quantize_parse(s, m, data):
    """Signed levels as numbers, and each element's scale."""
    blocks = blocks_of(m, s["block"])
    scale = np.frombuffer(data, "<f4", len(blocks)).astype(np.float64)
    raw = np.frombuffer(data, "u1", -1, 4 * len(blocks))
    bits = s["bits"]
    if bits == 4:
        raw = np.stack([raw & 15, raw >> 4], 1).reshape(-1)
    raw = raw[:m].astype(np.int64)
    top = 2 ** (bits - 1)
    if s["map"] == "dynamic":
        value = dynamic_table(bits - 1)[raw & (top - 1)]
        value = np.where(raw & top, -value, value)
    else:
        value = np.where(raw >= top, raw - 2 * top, raw).astype(np.float64)
    return value, np.repeat(scale, [b for _, b in blocks])


def quantize_check(s, x, r):
    parsed, at, good = np.zeros(len(x)), 0, True
    levels = quantize_levels(s)
    for m, data in payloads(r["block"], len(x), 0, quantize_bytes(s)):
        value, scale = quantize_parse(s, m, data)
        parsed[at:at + m] = (value.astype(np.float32)
                             * scale.astype(np.float32)).astype(np.float64)
        for b, n in blocks_of(m, s["block"]):
            part_x = x[at + b:at + b + n].astype(np.float64)
            most = np.max(np.abs(part_x))
            unit = 1 if s["map"] == "dynamic" else 2 ** (s["bits"] - 1) - 1
            # the scale: most / unit, rounded once
            good &= abs(scale[b] * unit - most) <= 2.0 ** -23 * most + unit * 2.0 ** -149
            if scale[b] == 0:
                continue
            # y lies between two levels; D must be the nearer (or either)
            y = np.minimum(np.abs(part_x) / most, 1)
            d = np.abs(parsed[at + b:at + b + n]) / most
            upper = np.clip(np.searchsorted(levels, y), 1, len(levels) - 1)
            low, high = levels[upper - 1], levels[upper]
            # rounding of the scale, of its inverse and of the products
            slack = 2.0 ** -21 + unit * 2.0 ** -149 / most
            if s["rounding"] == "nearest":
                good &= bool(np.all(np.abs(y - d) <= (high - low) / 2 + slack))
            else:
                good &= bool(np.all((np.abs(d - low) <= slack)
                                    | (np.abs(d - high) <= slack)))
            signs = np.sign(parsed[at + b:at + b + n])
            good &= bool(np.all((signs == 0) | (signs == np.sign(part_x))))
        at += m
    return good, parsed


# ---- fp8 ------------------------------------------------------------------

def fp8_table(form):
    mantissa, bias, codes = (3, 7, 0x7f) if form == "e4m3" else (2, 15, 0x7c)
    out = []
    for code in range(codes):
        e, f = code >> mantissa, code & (2 ** mantissa - 1)
        out.append(2.0 ** (1 - bias) * f / 2 ** mantissa if e == 0 else
                   2.0 ** (e - bias) * (1 + f / 2 ** mantissa))
    return np.array(out)


def nearest_even(table, y):
    """Codes of the nearest values, even code for ties."""
    upper = np.clip(np.searchsorted(table, y), 1, len(table) - 1)
    below, above = y - table[upper - 1], table[upper] - y
    up = (above < below) | ((above == below) & (upper % 2 == 0))
    return np.where(up, upper, upper - 1)


def fp8_check(s, x, r):
    table, at, good = fp8_table(s["format"]), 0, True
    parsed = np.zeros(len(x))
    top = table[-1]

    def size(m):
        return round4(m + len(blocks_of(m, s["block"])))

    for m, data in payloads(r["block"], len(x), 0, size):
        code = np.frombuffer(data, "u1", m)
        for i, (b, n) in enumerate(blocks_of(m, s["block"])):
            e = struct.unpack_from("b", data, m + i)[0]
            piece = x[at + b:at + b + n].astype(np.float64)
            most = np.max(np.abs(piece))
            # the smallest exponent at which nothing saturates, from -126 on
            good &= most <= top * 2.0 ** e or e == (119 if s["format"] == "e4m3" else 112)
            good &= e == -126 or most > top * 2.0 ** (e - 1)
            c = code[b:b + n].astype(np.int64)
            value = table[c & 127] * 2.0 ** e
            parsed[at + b:at + b + n] = np.where(c & 128, -value, value)
            y = np.minimum(np.abs(piece) * 2.0 ** -e, top)
            good &= np.array_equal(c & 127, nearest_even(table, y))
            if FP8 is not None:
                cast = torch.tensor(y, dtype=torch.float64).to(torch.float32)
                cast = cast.to(FP8[s["format"]]).to(torch.float64).numpy()
                same = y >= 2.0 ** -120  # else the f32 above rounds already
                good &= np.array_equal(cast[same], table[c & 127][same])
        at += m
    return good, parsed


# ---- sign -----------------------------------------------------------------

def sign_check(s, x, r):
    parsed, at, good = np.zeros(len(x)), 0, True

    def size(m):
        return 4 * len(blocks_of(m, s["block"])) + round4((m + 7) // 8)

    for m, data in payloads(r["block"], len(x), 0, size):
        blocks = blocks_of(m, s["block"])
        scale = np.frombuffer(data, "<f4", len(blocks)).astype(np.float64)
        bits = np.unpackbits(np.frombuffer(data, "u1", -1, 4 * len(blocks)),
                             bitorder="little")[:m]
        good &= np.array_equal(bits, x[at:at + m] < 0)
        for i, (b, n) in enumerate(blocks):
            mean = np.mean(np.abs(x[at + b:at + b + n].astype(np.float64)))
            good &= abs(scale[i] - mean) <= (2.0 ** -24 * mean * 1.0001
                                             + 2.0 ** -149)
            parsed[at + b:at + b + n] = np.where(bits[b:b + n], -scale[i],
                                                 scale[i])
        at += m
    return good, parsed


# ---- all together ---------------------------------------------------------

CHECKS = {"topk": topk_check, "quantize": quantize_check, "fp8": fp8_check,
          "sign": sign_check}
CASES = [
    ("topk", {}),
    ("topk", {"ratio": 0.05, "block": 128}),
    ("topk", {"ratio": 0.02, "values": "f16"}),
    ("topk", {"ratio": 0.1, "values": "f16", "indices": "u16", "block": 64}),
    ("topk", {"scope": "global"}),
    ("topk", {"scope": "global", "ratio": 0.2, "values": "f16"}),
    ("topk", {"scope": "global", "ratio": 0.1, "indices": "u16"}),
    ("topk", {"ratio": 1.0}),
    ("quantize", {}),
    ("quantize", {"bits": 4}),
    ("quantize", {"map": "dynamic"}),
    ("quantize", {"map": "dynamic", "bits": 4, "block": 32}),
    ("quantize", {"rounding": "stochastic"}),
    ("quantize", {"rounding": "stochastic", "bits": 4}),
    ("quantize", {"rounding": "stochastic", "map": "dynamic"}),
    ("quantize", {"rounding": "stochastic", "map": "dynamic", "bits": 4}),
    ("fp8", {}),
    ("fp8", {"format": "e5m2", "block": 32}),
    ("sign", {}),
    ("sign", {"block": 64}),
]


def inputs(rng):
    n = 7 * GRAIN + 333
    bell = rng.standard_normal(n)
    yield "bell", bell * 1e-3
    yield "heavy tail", bell ** 3 * np.exp(4 * rng.standard_normal(n))
    yield "many equals", np.round(bell * 2)
    yield "zeros", np.zeros(n)
    yield "denormal", np.round(bell * 1000) * 2.0 ** -149
    yield "ties", np.round(bell * 512) / 64
    yield "largest", np.sign(bell) * 3.4028234e38 * rng.choice(
        [1.0, 0.51, 1e-3], n)
    yield "one element", np.array([-2.5e-9])
    yield "one block and a bit", rng.standard_normal(GRAIN + 1)


def check_codec(name, given):
    s = dict(DEFAULTS[name], **given)
    rng = np.random.default_rng(20240)
    for what, x in inputs(rng):
        x = x.astype(np.float32)
        x[x == 0] = 0.0  # a is never -0
        r = compress(name, given, x)
        good, parsed = CHECKS[name](s, x, r)
        if not good:
            print(f"# {name} {given} {what}: not the definition")
        same = np.array_equal(parsed, r["out"].astype(np.float64))
        if not same:
            print(f"# {name} {given} {what}: decoded differs from parsed")
        rest = (x.astype(np.float64) - parsed).astype(np.float32)
        left = np.array_equal(rest, r["left"])
        if not left:
            print(f"# {name} {given} {what}: left out is not the difference")
        squares = float(np.sum(parsed ** 2))
        sums = abs(squares - r["squares"]) <= 1e-12 * squares
        ok(good and same and left and sums, f"{name} {given}: {what}")


# ---- the reference formulas ------------------------------------------------

def check_reference(name, given):
    s = dict(DEFAULTS[name], **given)
    lua = shutil.which("lua5.4") or shutil.which("lua")
    if lua is None:
        return
    x = np.random.default_rng(5).standard_normal(3 * GRAIN + 77)
    x = x.astype(np.float32)
    r = compress(name, given, x)
    run = subprocess.run(
        [lua, os.path.join(HERE, "codec_ref.lua"),
         os.path.join(HERE, "../../plugins/compressors", name,
                      name + ".ref.lua")]
        + [f"{key}={value}" for key, value in s.items()],
        input="\n".join(float(v).hex() for v in x), text=True,
        stdout=subprocess.PIPE)
    kept = np.array([float.fromhex(v) for v in run.stdout.split()])
    if len(kept) != len(x):
        ok(False, f"{name} {given}: the reference formula runs")
        return
    apart = np.abs(kept - r["out"]) > 1e-6 * np.max(np.abs(x))
    ok(np.sum(apart) <= len(x) // 1000,
       f"{name} {given}: the reference formula, {np.sum(apart)} apart")


# ---- unbiased -------------------------------------------------------------

def draws(s, y, seed=1, step=1, tensor="w"):
    """Upper (1) or lower (0) level of DRAWS equal numbers y times the block's
    largest, which is 1 and stands first in every block."""
    block = DEFAULTS["quantize"]["block"]
    n = (DRAWS // (block - 1) + 1) * block
    x = np.full(n, y, np.float32)
    x[::block] = 1.0
    r = compress("quantize", s, x, seed, step, tensor)
    keep = np.ones(n, bool)
    keep[::block] = False
    out = r["out"][keep][:DRAWS].astype(np.float64)
    return np.float64(np.float32(y)), out


def z_of(first, second):
    """Of the correlation of two sequences of draws."""
    a, b = first - first.mean(), second - second.mean()
    return np.sum(a * b) / np.sqrt(np.sum(a * a) * np.sum(b * b)) * np.sqrt(len(a))


def check_unbiased(given):
    s = dict(given, rounding="stochastic")
    levels = quantize_levels(dict(DEFAULTS["quantize"], **s))
    worst = 0.0
    good = True
    for at in (0, 1, len(levels) // 2, len(levels) - 2):
        for share in (0.005, 0.31, 0.5, 0.9, 0.995):
            y = levels[at] + share * (levels[at + 1] - levels[at])
            y, out = draws(s, y)
            low, high = np.min(out), np.max(out)
            good &= len(np.unique(out)) == 2
            good &= abs(low - levels[at]) < 1e-6 and abs(high - levels[at + 1]) < 1e-6
            p = (y - low) / (high - low)
            z = (out.mean() - y) / ((high - low) * np.sqrt(p * (1 - p) / DRAWS))
            worst = max(worst, abs(z))
    ok(good and worst < Z, f"quantize {s}: mean is x, worst |z| {worst:.2f}")
    y = (levels[0] + levels[1]) / 2
    _, out = draws(s, y)
    zs = {"the next element": z_of(out[:-1], out[1:]),
          "16 further": z_of(out[:-16], out[16:]),
          "1,024 further": z_of(out[:-1024], out[1024:]),
          "the next step": z_of(out, draws(s, y, step=2)[1]),
          "another tensor": z_of(out, draws(s, y, tensor="v")[1]),
          "another seed": z_of(out, draws(s, y, seed=2)[1])}
    for what, z in zs.items():
        ok(abs(z) < Z, f"quantize {s}: no correlation with {what} (z {z:.2f})")
    again = draws(s, y)[1]
    ok(np.array_equal(out, again), f"quantize {s}: the same key, the same draws")


for name, given in CASES:
    check_codec(name, given)
    if given.get("rounding") != "stochastic":
        check_reference(name, given)
for given in ({}, {"bits": 4}, {"map": "dynamic"}, {"map": "dynamic", "bits": 4}):
    check_unbiased(given)
driver.stdin.close()
ok(driver.wait() == 0, "the driver ends well")
print(f"1..{count}")
sys.exit(failed > 0)
