# SPDX-License-Identifier: Apache-2.0
"""Block kernels against PyTorch's scaled dot product attention.

Truth is PyTorch in f64.  f64 must agree to 1e-12; f32 and bf16 may be at most
twice as far from it as PyTorch in the same dtype, or 4 eps of the largest
value.  Gradients get the rounding of LSE on top: we make the weights anew from an
f32 LSE, so they are off by half an f32 eps of |LSE|, where PyTorch keeps them.
TAP.
"""
import os
import subprocess
import sys

import numpy as np
import torch

import torch.nn.functional as F

DRIVER = os.path.join(os.environ["GYRE_TOP_BUILD"], "tests/peer/attention_driver")
DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
#        batch heads kv rows keys dim v_dim causal
SHAPES = [
    (1, 1, 1, 64, 64, 32, 32, 1),
    (2, 3, 3, 130, 130, 64, 64, 1),
    (1, 4, 2, 77, 77, 128, 128, 1),
    (2, 2, 1, 65, 201, 48, 80, 0),
    (1, 2, 2, 500, 500, 256, 256, 1),
]


def sdpa(q, k, v, causal):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return F._scaled_dot_product_attention(q, k, v, is_causal=causal)[0]


def peer(tensors, shape, dtype):
    """O, LSE, DQ, DK, DV of PyTorch, as f64 arrays."""
    batch, heads, kv, rows, keys, dim, v_dim, causal = shape
    q, k, v, d_o = (torch.tensor(t).to(dtype) for t in tensors)
    for t in (q, k, v):
        t.requires_grad_(True)
    many = [t.repeat_interleave(heads // kv, dim=1) for t in (k, v)]
    o = sdpa(q, many[0], many[1], bool(causal))
    o.backward(d_o)
    s = (q @ many[0].transpose(-1, -2)).double() / dim**0.5
    if causal:
        s = s.masked_fill(torch.ones(rows, keys).triu(1).bool(), -torch.inf)
    lse = torch.logsumexp(s, dim=-1)
    return [t.detach().double().numpy() for t in (o, lse, q.grad, k.grad, v.grad)]


def ours(kernel, tensors, shape):
    batch, heads, kv, rows, keys, dim, v_dim, _ = shape
    out = subprocess.run(
        [DRIVER, kernel] + [str(n) for n in shape],
        input=b"".join(t.astype(np.float64).tobytes() for t in tensors),
        stdout=subprocess.PIPE, check=True).stdout
    flat, at, parts = np.frombuffer(out), 0, []
    for dims in [(batch, heads, rows, v_dim), (batch, heads, rows),
                 (batch, heads, rows, dim), (batch, kv, keys, dim),
                 (batch, kv, keys, v_dim)]:
        n = int(np.prod(dims))
        parts.append(flat[at:at + n].reshape(dims))
        at += n
    return parts


def compare(kernel, shape, seed):
    rng = np.random.default_rng(seed)
    batch, heads, kv, rows, keys, dim, v_dim, _ = shape
    dtype = DTYPES[kernel]
    tensors = [torch.tensor(rng.standard_normal(d)).to(dtype).double().numpy()
               for d in [(batch, heads, rows, dim), (batch, kv, keys, dim),
                         (batch, kv, keys, v_dim), (batch, heads, rows, v_dim)]]
    truth = peer(tensors, shape, torch.float64)
    plain = peer(tensors, shape, dtype)
    eps = torch.finfo(dtype).eps if kernel != "f64" else 1e-12 / 4
    wrong = []
    for name, got, want, like in zip(["O", "LSE", "DQ", "DK", "DV"],
                                     ours(kernel, tensors, shape), truth, plain):
        error = np.abs(got - want).max()
        bound = max(2 * np.abs(like - want).max() if kernel != "f64" else 0,
                    4 * eps * np.abs(want).max())
        if name.startswith("D") and kernel != "f64":
            bound += 2**-24 * np.abs(truth[1]).max() * np.abs(want).max()
        if not error <= bound:
            wrong.append(f"{name} is off by {error:g}, at most {bound:g}")
    return wrong


count = failed = 0
for kernel in DTYPES:
    for shape in SHAPES:
        count += 1
        wrong = compare(kernel, shape, count)
        failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {count} - {kernel} {shape}")
        for line in wrong:
            print("#", line)
print(f"1..{count}")
sys.exit(failed > 0)
