# SPDX-License-Identifier: Apache-2.0
"""Every optimizer and switch against PyTorch, over 200 steps.

Four runs of each job, with the same gradients:

    kernel  Gyre's f32 loops             (opt_driver)
    lua     the reference formula, f64   (ref_driver, where there is Lua)
    t64     torch.optim on f64 tensors
    t32     torch.optim on f32 tensors

and a fifth, `model`: the formula in f64 here, which carries beside every value
a bound of the error that f32 arithmetic can have made in it.  Checked are

    |lua - model|, |t64 - model|  rounding of f64 alone (1e-9 of the scale)
    |kernel - model|   <= bound of the kernel's operations
    |kernel - t32|     <= bound of the kernel's + bound of PyTorch's operations

The bound is a running error analysis: u = 2^-24 is the unit roundoff.  A sum,
product, quotient or root r of inexact operands has the error of its operands,
propagated, plus u |r|; fma(a, b, c) rounds once where a b + c rounds twice; a
constant rounded to f32 has u of itself.  Terms in u^2 are covered by SLACK.
The step functions below state this line by line: e_x is the bound of x, and
`k` the roundings of a product that is then added: 0 inside Gyre's fma, 1 in
PyTorch.  Lion is no continuous function: an element whose sign's argument is
within its own error may go the other way, by 2 lr; those are counted.

Gradients do not depend on parameters, so that errors propagate through the
optimizer only.  Accumulation over two micro-batches, clipping by global norm,
two groups with their own values and a changing rate are done here.
"""
import math
import os
import subprocess
import sys

import numpy as np

try:
    import torch
except ImportError:
    print("1..0 # SKIP no PyTorch; install python3-torch")
    sys.exit(0)

U = 2.0 ** -24
ETA = 2.0 ** -149  # half the last place of a denormal, doubled
SLACK = 1.01
N, CUT, STEPS = 768, 320, 200
HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("GYRE_TOP_BUILD", ".")
SOURCE = os.environ.get("GYRE_TOP_SRC", os.path.join(HERE, "..", ".."))


class State:
    """Values and error bounds of one group."""

    def __init__(self, p, slots):
        self.v = {"p": p.astype(np.float64)}
        self.e = {"p": np.zeros_like(self.v["p"])}
        for name, value in slots.items():
            self.v[name] = np.full(p.shape, float(np.float32(value)))
            self.e[name] = np.zeros(p.shape)


def root(v, e_v):
    """sqrt(v) and its bound: |sqrt(a) - sqrt(b)| <= |a - b| / sqrt(b)."""
    s = np.sqrt(v)
    with np.errstate(divide="ignore", invalid="ignore"):
        through = np.where(s > 0, e_v / s, np.inf)
    return s, np.minimum(through, np.sqrt(e_v)) + U * s


def quotient(a, e_a, b, e_b):
    r = a / b
    low = np.maximum(b - e_b, 0.5 * b)
    return r, e_a / low + np.abs(r) * e_b / low + U * np.abs(r)


def decayed(h, st, g, k):
    """g + weight_decay p, and its bound."""
    wd, p, e_p = h["weight_decay"], st.v["p"], st.e["p"]
    out = g + wd * p
    if wd == 0:
        return out, np.zeros_like(out)
    return out, wd * e_p + (1 + k) * U * np.abs(wd * p) + U * np.abs(out)


def mean(x, e_x, g, e_g, beta, k):
    """x + (1 - beta)(g - x), as the kernel has it (k = 0), or beta x +
    (1 - beta) g, as PyTorch has it: there both constants and both products
    are rounded, so that old and new part have 2u each."""
    c = 1 - beta
    out = x + c * (g - x)
    if k == 0:
        own = 2 * U * c * np.abs(g - x)
    else:
        own = 2 * U * (beta * np.abs(x) + c * np.abs(g))
    own = own + U * np.abs(out) + np.where(out != 0, ETA, 0)
    return out, beta * e_x + c * e_g + own


def adam_family(h, st, g, t, k, decoupled):
    st_v, st_e = st.v, st.e
    zero = np.zeros_like(g)
    if decoupled:
        e_g = zero
    else:
        g, e_g = decayed(h, st, g, k)
    b1, b2 = h["beta1"], h["beta2"]
    m, e_m = mean(st_v["exp_avg"], st_e["exp_avg"], g, e_g, b1, k)
    # (g + e)^2 - g^2; PyTorch rounds value * g * g twice more.
    e_gg = 2 * np.abs(g) * e_g + e_g ** 2 + k * U * g * g
    v, e_v = mean(st_v["exp_avg_sq"], st_e["exp_avg_sq"], g * g, e_gg, b2, k)
    st_v["exp_avg"], st_e["exp_avg"] = m, e_m
    st_v["exp_avg_sq"], st_e["exp_avg_sq"] = v, e_v
    if h["amsgrad"]:
        # max changes by no more than its operands
        e_v = np.maximum(st_e["max_exp_avg_sq"], e_v)
        v = np.maximum(st_v["max_exp_avg_sq"], v)
        st_v["max_exp_avg_sq"], st_e["max_exp_avg_sq"] = v, e_v
    c1 = 1 - b1 ** t if h["bias_correction"] else 1.0
    c2 = 1 - b2 ** t if h["bias_correction"] else 1.0
    s, e_s = root(v, e_v)
    f = 1 / math.sqrt(c2)
    d = s * f + h["eps"]
    e_d = f * e_s + (1 + k) * U * f * s + U * h["eps"] + U * d
    r, e_r = quotient(m, e_m, d, e_d)
    step = h["lr"] / c1
    p, e_p = st_v["p"], st_e["p"]
    if decoupled:
        decay = h["lr"] * h["weight_decay"]
        move = decay * p + step * r
        out = p - move
        own = step * e_r + 2 * U * np.abs(step * r)
        if k == 0:
            own += U * np.abs(decay * p) + U * np.abs(move)
        else:
            own += (2 * U * np.abs(p) if decay else 0) + U * np.abs(step * r)
        e_p = (1 - decay) * e_p + own + U * np.abs(out)
    else:
        out = p - step * r
        e_p = e_p + step * e_r + (1 + 2 * k) * U * np.abs(step * r)
        e_p = e_p + U * np.abs(out)
    st_v["p"], st_e["p"] = out, e_p


def adam(h, st, g, t, k):
    adam_family(h, st, g, t, k, False)


def adamw(h, st, g, t, k):
    adam_family(h, st, g, t, k, True)


def sgd(h, st, g, t, k):
    mu = h["momentum"]
    g, e_g = decayed(h, st, g, k)
    d, e_d = g, e_g
    if "momentum_buffer" in st.v:
        b, e_b = st.v["momentum_buffer"], st.e["momentum_buffer"]
        keep, take = mu, 1 - h["dampening"]
        if h["averaging"]:
            take = 1 - mu
        elif t == 1:
            keep, take = 0.0, 1.0
        new = keep * b + take * g
        e_b = keep * e_b + (1 + k) * U * np.abs(keep * b) + take * e_g
        # constant and product, both exact when take is 1
        e_b = e_b + (0 if take == 1 else 2 * U * np.abs(take * g))
        e_b = e_b + U * np.abs(new)
        st.v["momentum_buffer"], st.e["momentum_buffer"] = new, e_b
        d, e_d = new, e_b
        if h["nesterov"]:
            d = g + mu * new
            e_d = e_g + mu * e_b + (1 + k) * U * np.abs(mu * new)
            e_d = e_d + U * np.abs(d)
    out = st.v["p"] - h["lr"] * d
    e_p = st.e["p"] + h["lr"] * (e_d + (1 + k) * U * np.abs(d))
    st.v["p"], st.e["p"] = out, e_p + U * np.abs(out)


def adagrad(h, st, g, t, k):
    plain = g
    g, e_g = decayed(h, st, g, k)
    new = st.v["sum"] + g * g
    e_s = st.e["sum"] + 2 * np.abs(g) * e_g + e_g ** 2
    st.e["sum"] = e_s + k * 2 * U * g * g + U * new + ETA
    st.v["sum"] = new
    if h["decay_in"]:
        g, e_g = plain, np.zeros_like(g)
    s, e_s = root(new, st.e["sum"])
    d = s + h["eps"]
    r, e_r = quotient(g, e_g, d, e_s + U * h["eps"] + U * d)
    rate = h["lr"] / (1 + (t - 1) * h["lr_decay"])
    out = st.v["p"] - rate * r
    e_p = st.e["p"] + rate * (e_r + (1 + 2 * k) * U * np.abs(r))
    st.v["p"], st.e["p"] = out, e_p + U * np.abs(out)


def lion(h, st, g, t, k):
    m, e_m = st.v["exp_avg"], st.e["exp_avg"]
    zero = np.zeros_like(g)
    c, e_c = mean(m, e_m, g, zero, h["beta1"], k)
    new, e_new = mean(m, e_m, g, zero, h["beta2"], k)
    st.v["exp_avg"], st.e["exp_avg"] = new, e_new
    sign = np.sign(c)
    flips = (np.abs(c) <= e_c) & (e_c > 0)
    st.flips = getattr(st, "flips", 0) + int(flips.sum())
    decay = h["lr"] * h["weight_decay"]
    p, e_p = st.v["p"], st.e["p"]
    move = decay * p + h["lr"] * sign
    out = p - move
    own = U * h["lr"] + (2 + 2 * k) * U * np.abs(decay * p)
    own = own + U * np.abs(move) + np.where(flips, 2 * h["lr"], 0)
    st.v["p"] = out
    st.e["p"] = (1 - decay) * e_p + own + (1 + k) * U * np.abs(out)


class Lion(torch.optim.Optimizer):
    """Lion is not in PyTorch: algorithm 2 of the paper, ten lines."""

    def __init__(self, params, **h):
        super().__init__(params, h)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                g = -p.grad if group["maximize"] else p.grad
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(torch.sign(b1 * m + (1 - b1) * g), alpha=group["lr"])
                m.mul_(b2).add_(g, alpha=1 - b2)


BASE = {
    "adam": dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0,
                 amsgrad=0, maximize=0, bias_correction=1),
    "adamw": dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8,
                  weight_decay=1e-2, amsgrad=0, maximize=0,
                  bias_correction=1),
    "sgd": dict(lr=1e-2, momentum=0.0, dampening=0.0, nesterov=0,
                weight_decay=0.0, maximize=0, averaging=0),
    "adagrad": dict(lr=1e-2, lr_decay=0.0, weight_decay=0.0,
                    initial_accumulator_value=0.0, eps=1e-10, maximize=0,
                    decay_in=0),
    "lion": dict(lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0,
                 maximize=0),
}
MODEL = dict(adam=adam, adamw=adamw, sgd=sgd, adagrad=adagrad, lion=lion)
PEER = dict(adam=torch.optim.Adam, adamw=torch.optim.AdamW,
            sgd=torch.optim.SGD, adagrad=torch.optim.Adagrad, lion=Lion)
JOBS = [
    ("adam", {}),
    ("adam", dict(weight_decay=0.01)),
    ("adam", dict(amsgrad=1, maximize=1, weight_decay=0.01)),
    ("adam", dict(beta1=0.0, beta2=0.9, eps=1e-3)),
    ("adam", dict(bias_correction=0)),
    ("adamw", {}),
    ("adamw", dict(weight_decay=0.0)),
    ("adamw", dict(amsgrad=1, weight_decay=0.1)),
    ("adamw", dict(maximize=1, beta1=0.95, beta2=0.98, eps=1e-6)),
    ("adamw", dict(bias_correction=0, weight_decay=0.1)),
    ("sgd", {}),
    ("sgd", dict(weight_decay=0.1, maximize=1)),
    ("sgd", dict(momentum=0.9, weight_decay=0.01)),
    ("sgd", dict(momentum=0.9, dampening=0.5)),
    ("sgd", dict(momentum=0.9, nesterov=1, weight_decay=0.01)),
    ("sgd", dict(momentum=0.9, averaging=1, weight_decay=0.01)),
    ("adagrad", {}),
    ("adagrad", dict(lr_decay=0.01, weight_decay=0.01, maximize=1)),
    ("adagrad", dict(initial_accumulator_value=0.1, eps=1e-6)),
    ("adagrad", dict(decay_in=1, weight_decay=0.1)),
    ("lion", {}),
    ("lion", dict(weight_decay=0.1, maximize=1, beta1=0.95, beta2=0.98)),
]
SLOTS = dict(adam=["exp_avg", "exp_avg_sq"], adamw=["exp_avg", "exp_avg_sq"],
             sgd=[], adagrad=["sum"], lion=["exp_avg"])


def slots_of(name, h):
    out = list(SLOTS[name])
    if h.get("amsgrad"):
        out.append("max_exp_avg_sq")
    if h.get("momentum"):
        out.append("momentum_buffer")
    return out


def has_peer(h):
    return (h.get("bias_correction", 1) and not h.get("averaging")
            and not h.get("decay_in"))


def make_data(seed, ill):
    """Parameters, and gradients of 2 micro-batches, averaged and clipped.

    Where the decay joins a gradient that is then divided by its own size
    (`ill`), an element whose gradient is mostly decay oscillates around zero
    and its error grows without limit, in any arithmetic: there gradients are
    kept away from zero, so that the bound says something."""
    rng = np.random.default_rng(seed)
    p = rng.standard_normal(N).astype(np.float32)
    p[:8] = 0
    low = 0 if ill else -5
    size = np.float32(10) ** rng.uniform(low, 1, N).astype(np.float32)
    if not ill:
        size[8:16] = 0  # elements that never get a gradient
    grads = []
    for _ in range(STEPS):
        g = (rng.standard_normal(N).astype(np.float32) * size
             + rng.standard_normal(N).astype(np.float32) * size)
        g = g * np.float32(0.5)
        norm = math.sqrt(float(np.sum(g.astype(np.float64) ** 2)))
        grads.append(g * np.float32(min(1.0, 40.0 / (norm + 1e-6))))
    return p, grads


def schedule(h, t):
    """lr and weight decay of both groups: a cosine, the second twice as fast
    with a third of the decay."""
    factor = 0.55 + 0.45 * math.cos(math.pi * t / STEPS)
    wd = h["weight_decay"]
    return [(h["lr"] * factor, wd), (2 * h["lr"] * factor, wd / 3)]


def drive(program, arguments, name, h, p, grads, dtype):
    job = ["optimizer " + name]
    job += ["set %s %.17g" % item for item in h.items()]
    job += ["vary lr", "vary weight_decay", "cuts 0 %d %d" % (CUT, N),
            "steps %d" % STEPS, "go", ""]
    data = ["\n".join(job).encode(), p.tobytes()]
    for t, g in enumerate(grads, 1):
        data.append(np.array(schedule(h, t), dtype=np.float64).tobytes())
        data.append(g.tobytes())
    done = subprocess.run([program] + arguments, input=b"".join(data),
                          stdout=subprocess.PIPE, check=True)
    names = ["p"] + slots_of(name, h)
    out = np.frombuffer(done.stdout, dtype).reshape(STEPS, len(names), N)
    return {k: out[:, i].astype(np.float64) for i, k in enumerate(names)}


def run_model(name, h, p, grads, k):
    slots = {s: h.get("initial_accumulator_value", 0.0) if s == "sum" else 0.0
             for s in slots_of(name, h)}
    groups = [State(p[:CUT], slots), State(p[CUT:], slots)]
    values, bounds = [], []
    for t, g in enumerate(grads, 1):
        g = -g if h["maximize"] else g
        parts = [g[:CUT].astype(np.float64), g[CUT:].astype(np.float64)]
        for st, part, (lr, wd) in zip(groups, parts, schedule(h, t)):
            MODEL[name](dict(h, lr=lr, weight_decay=wd), st, part, t, k)
        values.append({s: np.concatenate([st.v[s] for st in groups])
                       for s in groups[0].v})
        bounds.append({s: np.concatenate([st.e[s] for st in groups])
                       for s in groups[0].v})
    flips = sum(getattr(st, "flips", 0) for st in groups)
    join = lambda rows: {s: np.stack([r[s] for r in rows]) for s in rows[0]}
    return join(values), join(bounds), flips


def run_torch(name, h, p, grads, dtype):
    tensors = [torch.tensor(part, dtype=dtype, requires_grad=True)
               for part in (p[:CUT], p[CUT:])]
    own = {k: v for k, v in h.items() if k not in
           ("beta1", "beta2", "bias_correction", "averaging", "decay_in")}
    for key in ("amsgrad", "maximize", "nesterov"):
        if key in own:
            own[key] = bool(own[key])
    if "beta1" in h:
        own["betas"] = (h["beta1"], h["beta2"])
    if name in ("adam", "adamw"):
        own["foreach"] = False
    opt = PEER[name]([dict(params=[x]) for x in tensors], **own)
    rows = []
    for t, g in enumerate(grads, 1):
        for x, part, group, (lr, wd) in zip(tensors, (g[:CUT], g[CUT:]),
                                            opt.param_groups,
                                            schedule(h, t)):
            x.grad = torch.tensor(part, dtype=dtype)
            group["lr"], group["weight_decay"] = lr, wd
        opt.step()
        row = {"p": np.concatenate([x.detach().double().numpy()
                                    for x in tensors])}
        for s in slots_of(name, h):
            row[s] = np.concatenate([opt.state[x][s].double().numpy()
                                     for x in tensors])
        rows.append(row)
    return {s: np.stack([r[s] for r in rows]) for s in rows[0]}


class Tap:
    def __init__(self):
        self.count, self.failed = 0, 0

    def check(self, good, what):
        self.count += 1
        self.failed += not good
        print("%sok %d - %s" % ("" if good else "not ", self.count, what),
              flush=True)


def worst(error, bound):
    """The largest share of its bound that an error takes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(error == 0, 0.0, error / (SLACK * bound))
    return float(np.max(share))


def near(a, b):
    """Apart by f64 rounding only, in units of the largest value."""
    return max(float(np.max(np.abs(a[s] - b[s]))
                     / max(1e-30, np.max(np.abs(b[s])))) for s in b)


def check_job(tap, index, name, h, lua):
    switches = " ".join("%s=%g" % i for i in h.items()
                        if i[1] != BASE[name][i[0]])
    title = (name + " " + switches).strip()
    ill = h["weight_decay"] > 0 and name in ("adam", "adagrad")
    p, grads = make_data(index, ill)
    ours, bound, flips = run_model(name, h, p, grads, 0)
    kernel = drive(BUILD + "/tests/peer/opt_driver", [], name, h, p, grads,
                   np.float32)
    shares = {s: worst(np.abs(kernel[s] - ours[s]), bound[s]) for s in ours}
    note = ", ".join("%s %.2f" % i for i in shares.items())
    if name == "lion":
        note += ", %d doubtful signs of %d" % (flips, N * STEPS)
    # A bound that allows anything proves nothing: hundreds of steps of up to
    # 20 and parameters around 1 leave 1e-3, beside doubtful signs.
    widest = float(np.max(bound["p"]))
    tap.check(max(shares.values()) <= 1 and widest < 1e-3 + flips * h["lr"],
              "%s: kernel in bounds (of 1: %s; largest bound of p %.1e)"
              % (title, note, widest))
    if lua:
        path = os.path.join(SOURCE, "plugins", "optimizers", name,
                            name + ".ref.lua")
        ref = drive(BUILD + "/tests/peer/ref_driver", [path], name, h, p,
                    grads, np.float64)
        tap.check(near(ref, ours) < 1e-9, title + ": Lua reference agrees")
    if not has_peer(h):
        return
    t64 = run_torch(name, h, p, grads, torch.float64)
    tap.check(near(t64, ours) < 1e-9, title + ": PyTorch in f64 agrees")
    _, peer, _ = run_model(name, h, p, grads, 1)
    t32 = run_torch(name, h, p, grads, torch.float32)
    shares = {s: worst(np.abs(kernel[s] - t32[s]), bound[s] + peer[s])
              for s in ours}
    tap.check(max(shares.values()) <= 1,
              "%s: PyTorch in f32 within both bounds (of 1: %s)"
              % (title, ", ".join("%s %.2f" % i for i in shares.items())))


def main():
    torch.set_num_threads(1)
    lua = os.path.exists(BUILD + "/tests/peer/ref_driver")
    tap = Tap()
    for index, (name, other) in enumerate(JOBS):
        check_job(tap, index, name, dict(BASE[name], **other), lua)
    print("1..%d" % tap.count)
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
