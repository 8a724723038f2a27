# SPDX-License-Identifier: Apache-2.0
"""Every state codec against a definition in numpy, bit for bit.

The definition is gyre-store(5): q8's codes are found here by searching the
list of shares, not by the arithmetic of the library, so that the two may
differ only where a value lies within 2^-14 of a step of the border of two
codes; such are let pass, counted, and must be rare.  The bytes of bf16 and
everything decoded must be the same without exception.

Then AdamW and SGD are trained here by a plain loop (f32 numpy, fma by way of
f64) with every variable rounded after each step, against the update of the
library: the same bytes after 60 steps.
"""
import os
import subprocess
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("GYRE_TOP_BUILD", ".")
GRAIN, BLOCK = 1024, 256
f32, f64, u32 = np.float32, np.float64, np.uint32
np.seterr(all="ignore")

# ---- the definition -------------------------------------------------------


def gyre_hash(key0, key1, counter):
    k0, k1 = u32(key0), u32(key1)
    x = (counter.astype(u32) ^ k0) * u32(0x9e3779b1) + k1
    x = (x ^ (x >> u32(16))) * u32(0x7feb352d)
    x = (x ^ (x >> u32(15))) * u32(0x846ca68b)
    x = (x ^ (x >> u32(16))) + k0
    x = (x ^ (x >> u32(17))) * u32(0xed5ad4bb)
    x = (x ^ (x >> u32(11))) * u32(0xac4c1b51)
    x = (x ^ (x >> u32(15))) * u32(0x31848bab)
    return x ^ (x >> u32(14))


def one(value):
    return np.array([value & 0xffffffff], u32)


def grain_key(key, v, index):
    k0 = int(gyre_hash(key[0], key[1], one(v))[0])
    k1 = int(gyre_hash(key[1], k0, one(index >> 32))[0])
    return k0, k1


def draws(key, index):
    """The 16 random bits of each element of a grain."""
    counter = (np.arange(GRAIN, dtype=np.uint64) + np.uint64(index))
    return gyre_hash(key[0], key[1], counter.astype(u32)) >> u32(16)


def to_bf16(x):
    u = x.view(u32).astype(np.uint64)
    near = (u + 0x7fff + (u >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    quiet = u >> np.uint64(16) | np.uint64(0x40)
    return np.where(np.isnan(x), quiet, near).astype(np.uint16)


def to_bf16_stochastic(x, r):
    u = x.view(u32)
    low = (u & u32(0xffff)).astype(np.int64)
    up = (low + r.astype(np.int64)) >= 65536
    out = (u >> u32(16)) + up.astype(u32)
    most = (u & u32(0x80000000)) >> u32(16) | u32(0x7f7f)
    finite = np.isfinite(x)
    out = np.where(finite & ((out & 0x7fff) > 0x7f7f), most, out)
    out = np.where(np.isnan(x), u >> u32(16) | u32(0x40), out)
    return np.where(np.isinf(x), u >> u32(16), out).astype(np.uint16)


def from_bf16(h):
    return (h.astype(u32) << u32(16)).view(f32)


def shares(top):
    out = [0.0]
    for code in range(1, 2 << top):
        f = code.bit_length() - 1
        out.append(8.0 ** (f - top - 1) * (7 * (code + 1) / 2 ** f - 6))
    return np.array(out)


SHARES = {6: shares(6), 7: shares(7)}
passed = {"near": 0, "all": 0}


def q8_block(x, r, have):
    """Codes and scale; `have` decides where it is a matter of rounding."""
    size = np.abs(x)
    if not np.all(np.isfinite(x)):
        return np.zeros(BLOCK, np.uint8), f32(np.nan)
    if not np.any(size):
        return np.zeros(BLOCK, np.uint8), f32(0)
    scale = max(size.max(), f32(2.0 ** -126))
    whole = not np.any(x < 0)
    top = 7 if whole else 6
    grid = SHARES[top]
    # In f64, where x / scale has 29 bits more than a step needs.
    y = size.astype(f64) / f64(scale)
    low = np.minimum(np.searchsorted(grid, y, side="right") - 1,
                     len(grid) - 2)
    place = low + (y - grid[low]) / (grid[low + 1] - grid[low])
    dither = 0.5 if r is None else r / 65536.0
    code = np.floor(place + dither).astype(np.int64)
    border = np.abs(place + dither - np.round(place + dither)) < 2.0 ** -14
    mine = have.astype(np.int64) & (255 if whole else 127)
    may = border & (np.abs(mine - np.round(place + dither)) <= 1)
    passed["near"] += int(np.sum(may & (mine != code)))
    passed["all"] += BLOCK
    code = np.where(may, mine, code)
    code = np.minimum(code, len(grid) - 1)
    if whole:
        code = np.where((code == 0) & (x > 0), 1, code)
        return code.astype(np.uint8), -scale
    code = np.where((x < 0) & (code > 0), code | 128, code)
    return code.astype(np.uint8), scale


def q8_encode(x, r, have):
    codes, scales = [], []
    for b in range(0, GRAIN, BLOCK):
        s = slice(b, b + BLOCK)
        c, scale = q8_block(x[s], None if r is None else r[s], have[s])
        codes.append(c)
        scales.append(scale)
    return np.concatenate([np.concatenate(codes),
                           np.array(scales, f32).view(np.uint8)])


def q8_decode(grain):
    out = np.empty(GRAIN, f32)
    scales = grain[GRAIN:].copy().view(f32)
    for b in range(GRAIN // BLOCK):
        codes = grain[b * BLOCK:(b + 1) * BLOCK].astype(np.int64)
        scale = np.abs(scales[b])
        if np.signbit(scales[b]):
            out[b * BLOCK:(b + 1) * BLOCK] = SHARES[7][codes].astype(f32) * scale
        else:
            value = SHARES[6][codes & 127].astype(f32) * scale
            out[b * BLOCK:(b + 1) * BLOCK] = np.where(codes > 127, -value, value)
    return out


STRIDE = {"f32": 4096, "bf16": 2048, "bf16-stochastic": 2048, "q8": 1040}


def encode(codec, x, r, have):
    """Bytes of a grain; r: random bits or None."""
    if codec == "f32":
        return x.view(np.uint8)
    if codec == "q8":
        return q8_encode(x, r, have)
    if codec == "bf16" or r is None:
        return to_bf16(x).view(np.uint8)
    return to_bf16_stochastic(x, r).view(np.uint8)


def decode(codec, grain):
    if codec == "f32":
        return grain.view(f32)
    if codec == "q8":
        return q8_decode(grain)
    return from_bf16(grain.view(np.uint16))


# ---- the driver ------------------------------------------------------------


def drive(head, data):
    done = subprocess.run([os.path.join(BUILD, "tests/peer/state_driver")],
                          input=head.encode() + data,
                          stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        print(f"Bail out! state_driver: status {done.returncode}")
        sys.exit(99)
    return np.frombuffer(done.stdout, np.uint8)


number = 0


def tell(good, name, why=""):
    global number
    number += 1
    print(f"{'ok' if good else 'not ok'} {number} - {name}"
          + (f"\n# {why}" if why else ""), flush=True)
    return good


# ---- one grain after another -------------------------------------------------


def samples(rng):
    """Grains of every kind: any bits, any decade, one sign, tiny, sparse."""
    out = [rng.integers(0, 2 ** 32, GRAIN * 8, dtype=np.uint64).astype(u32)
           .view(f32)]
    spread = np.exp2(-rng.uniform(0, 30, GRAIN * 24))
    out.append((spread[:8192] * rng.choice([-1, 1], 8192)).astype(f32))
    out.append(spread[8192:16384].astype(f32))
    out.append((rng.standard_normal(8192) * 1e-3).astype(f32))
    tiny = rng.integers(0, 4096, GRAIN * 2, dtype=np.uint64).astype(u32)
    out.append(tiny.view(f32))
    sparse = np.where(rng.random(4096) < 0.02, spread[16384:20480], 0)
    out.append(sparse.astype(f32))
    big = (3.4e38 * rng.uniform(0.9, 1.0, 2048)).astype(f32)
    out.append(big * rng.choice([-1, 1], 2048).astype(f32))
    return np.concatenate(out)


def same(a, b):
    """Bits, but for NaN, which is one class."""
    return np.array_equal(a.view(u32), b.view(u32)) or bool(
        np.all((a.view(u32) == b.view(u32)) | (np.isnan(a) & np.isnan(b))))


def check_codec(codec, random, rng):
    x = samples(rng)
    grains = len(x) // GRAIN
    key = (int(rng.integers(2 ** 32)), int(rng.integers(2 ** 32)))
    index = int(rng.integers(2 ** 20)) * GRAIN
    raw = drive(f"code {codec} {random} {key[0]} {key[1]} {index} {grains}\n",
                x.tobytes())
    size, bad = STRIDE[codec], []
    for k in range(grains):
        at = k * (size + 4096)
        have = raw[at:at + size]
        r = draws(key, index + k * GRAIN) if random else None
        want = encode(codec, x[k * GRAIN:(k + 1) * GRAIN], r, have)
        back = raw[at + size:at + size + 4096].view(f32)
        scale_nan = codec == "q8"
        if not (np.array_equal(want, have) or (scale_nan and
                np.array_equal(want[:GRAIN], have[:GRAIN]) and
                same(want[GRAIN:].copy().view(f32),
                     have[GRAIN:].copy().view(f32)))):
            bad.append(f"grain {k}: bytes")
        if not same(decode(codec, have), back):
            bad.append(f"grain {k}: values")
    how = "by a counter" if random else "to nearest"
    tell(not bad, f"{codec}, {grains} grains, {how}", "; ".join(bad[:4]))


# ---- training ---------------------------------------------------------------


def fma(a, b, c):
    """The product of two f32 is exact in f64; the sum is rounded twice, which
    shows once in 2^29."""
    return (a.astype(f64) * b.astype(f64) + c.astype(f64)).astype(f32)


def const(value):
    return np.array([value], f32)


def adamw(t, g, v):
    p, m, s = v
    b1, b2, lr = 0.9, 0.999, 1e-3
    m = fma(const(1 - b1), g - m, m)
    s = fma(const(1 - b2), fma(g, g, -s), s)
    root = const(1 / np.sqrt(1 - b2 ** t))
    step = const(lr / (1 - b1 ** t))
    denominator = fma(np.sqrt(s), root, const(1e-8))
    return [p - fma(const(lr * 0.01), p, step * (m / denominator)), m, s]


def sgd(t, g, v):
    p, b = v
    g = fma(const(0.001), p, g)
    b = g.copy() if t == 1 else fma(const(0.9), b, g)
    return [fma(const(-0.01), b, p), b]


def train(name, rule, sets, codecs, rng, n=2500, steps=60):
    key = (int(rng.integers(2 ** 31)), int(rng.integers(2 ** 32)))
    index = 3 * GRAIN
    p = rng.standard_normal(n).astype(f32)
    g = (rng.standard_normal((steps, n)) *
         np.exp2(-rng.uniform(0, 12, n))).astype(f32)
    head = (f"train {name} {n} {steps} {key[0]} {key[1]} {index} "
            f"{' '.join(codecs)}\n"
            + "".join(f"set {k} {x}\n" for k, x in sets.items()) + "go\n")
    raw = drive(head, p.tobytes() + g.tobytes())
    grains, at, why = -(-n // GRAIN), 0, ""
    pad = grains * GRAIN - n
    v = [np.concatenate([p, np.zeros(pad, f32)])]
    v += [np.zeros(grains * GRAIN, f32) for _ in codecs[1:]]
    for i, codec in enumerate(codecs):
        first = [v[i][k * GRAIN:(k + 1) * GRAIN] for k in range(grains)]
        v[i] = np.concatenate([decode(codec, encode(
            codec, x, None, np.zeros(STRIDE[codec], np.uint8)))
            for x in first])
    for t in range(1, steps + 1):
        part = rule(t, g[t - 1], [x[:n] for x in v])
        for i, codec in enumerate(codecs):
            x = np.concatenate([part[i].astype(f32), np.zeros(pad, f32)])
            values = raw[at:at + 4 * n].view(f32)
            at += 4 * n
            have = raw[at:at + grains * STRIDE[codec]]
            at += grains * STRIDE[codec]
            want = []
            for k in range(grains):
                place = index + k * GRAIN
                gk = grain_key(((key[0] + t) & 0xffffffff, key[1]), i, place)
                one_grain = have[k * STRIDE[codec]:(k + 1) * STRIDE[codec]]
                want.append(encode(codec, x[k * GRAIN:(k + 1) * GRAIN],
                                   draws(gk, place), one_grain))
            if not np.array_equal(np.concatenate(want), have) and not why:
                off = np.flatnonzero(np.concatenate(want) != have)
                why = f"step {t}, variable {i}: {len(off)} bytes differ"
            v[i] = np.concatenate([decode(codec, x) for x in want])
            if not same(v[i][:n], values) and not why:
                why = f"step {t}, variable {i}: values differ"
    tell(not why, f"{name}, {steps} steps: {', '.join(codecs)}", why)


def main():
    rng = np.random.default_rng(20)
    momentum = {"momentum": 0.9, "weight_decay": 0.001, "lr": 0.01}
    decay = {"weight_decay": 0.01}
    jobs = [("adamw", adamw, decay, c) for c in (
        ("f32", "f32", "f32"), ("bf16", "f32", "f32"),
        ("bf16-stochastic", "f32", "f32"), ("bf16", "bf16", "bf16"),
        ("f32", "q8", "q8"), ("bf16-stochastic", "bf16-stochastic", "q8"))]
    jobs += [("sgd", sgd, momentum, c) for c in (
        ("bf16", "f32"), ("bf16-stochastic", "q8"), ("f32", "bf16"))]
    print(f"1..{7 + len(jobs) + 1}")
    for codec in STRIDE:
        for random in (0, 1):
            if random and codec == "f32":
                continue
            check_codec(codec, random, rng)
    for job in jobs:
        train(*job, rng)
    tell(passed["near"] <= passed["all"] * 2.0 ** -13,
         "q8: codes on a border are rare",
         f"{passed['near']} of {passed['all']}")


main()
