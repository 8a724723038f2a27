#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Repeats a training step of the example gpt in PyTorch, in float64.

    gpt_torch.py PATH_OF_gpt_dump

Loss and every gradient of the C code (f32) must lie within k u S of the
float64 reference, u = 2^-24. Output is TAP; run by gpt.test.

S, the scale of a rounding error. The gradient of a weight is a sum over the
N rows of dY[n, o] X[n, i]. Both factors carry errors that are relative to
the size of their row, not of the element, because each is itself an inner
product with the row before it. With |v|' = |v| + rms of its row,

    S[o, i] = || dY[:, o]' ||_2 || X[:, i]' ||_2        (Cauchy-Schwarz)

A bias is the case X = 1, the weight of a LayerNorm the diagonal case with
X the normalised input, and an embedding the case in which X picks rows.

k, the number of errors. A sum of m products has an error of at most
lambda sqrt(m) u S with a probability above 1 - 2 exp(-lambda^2 / 2) under
independent rounding errors (Higham and Mary, SIAM J. Sci. Comput. 41, 2019);
errors of consecutive sums add in squares. The longest chain to a gradient
passes the forward pass and the backward pass of every layer:

    forward, one layer   2 LayerNorms with 2 sums of C, c_attn C, scores d,
                         softmax T, values T, c_proj C, c_fc C, c_proj 4C,
                         and about 40 roundings element by element
    backward, one layer  the same once more, and the sums recomputed
    head                 2C + 2C + 256 + 256;    the last sum: N

    k = lambda sqrt(L (2 (11 C + d + 2 T + 40)) + 4 C + 512 + N), lambda = 8

That takes each layer to pass on errors without magnifying them, which holds
for the weights of gpt_dump (noise of 0.1): the largest measured ratio of an
error to u S sqrt(...) is about 0.5. lambda = 8 leaves a false alarm among
10^6 elements a probability below 10^-7. The controls at the end show that
the bound still tells the two forms of GELU apart, and eps 1e-5 from 2e-5.
"""
import math
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    print("1..0 # SKIP no PyTorch; install python3-torch")
    sys.exit(0)

U = 2.0**-24
LAMBDA = 8.0
VOCABULARY = 256

#          layers heads width context batch length
CONFIGS = [(1, 2, 32, 16, 4, 16),
           (3, 3, 48, 40, 3, 40),
           (2, 4, 64, 160, 2, 131),
           (2, 1, 20, 24, 1, 24),
           (4, 4, 128, 128, 4, 128)]


class Step:
    """One dumped step: shapes, tokens, loss, weights and gradients."""

    def __init__(self, path):
        with open(path, "rb") as f:
            raw = f.read()
        head = struct.unpack_from("<7qd", raw)
        (self.layers, self.heads, self.width, self.context, self.batch,
         self.length, count, self.loss) = head
        self.at = 64
        self.raw = raw
        shape = (self.batch, self.length)
        self.tokens = self.take("<i4", shape).astype(np.int64)
        self.targets = self.take("<i4", shape).astype(np.int64)
        self.data, self.grad = {}, {}
        for _ in range(count):
            self.parameter()

    def take(self, dtype, shape):
        n = math.prod(shape)
        a = np.frombuffer(self.raw, dtype, n, self.at).reshape(shape)
        self.at += a.nbytes
        return a

    def parameter(self):
        (length,) = struct.unpack_from("<q", self.raw, self.at)
        name = self.raw[self.at + 8:self.at + 8 + length].decode()
        self.at += 8 + length
        rank, *shape = struct.unpack_from("<3q", self.raw, self.at)
        self.at += 24
        self.data[name] = self.take("<f4", tuple(shape[:rank]))
        self.grad[name] = self.take("<f4", tuple(shape[:rank]))


class Reference:
    """The model in float64, with what the bounds need."""

    def __init__(self, step, approximate="tanh", eps=1e-5):
        self.s, self.approximate, self.eps = step, approximate, eps
        self.p = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True)
                  for k, v in step.data.items()}
        self.pairs = {}  # parameter -> (kind, X, Y); dY is Y.grad
        self.loss = self.forward()
        self.loss.backward()

    def keep(self, name, kind, x, y):
        y.retain_grad()
        self.pairs[name] = (kind, x, y)
        return y

    def linear(self, x, name):
        y = F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))
        self.keep(name + ".bias", "bias", None, y)
        return self.keep(name + ".weight", "linear", x, y)

    def norm(self, x, name):
        n = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        y = n * self.p[name + ".weight"] + self.p[name + ".bias"]
        self.keep(name + ".bias", "bias", None, y)
        return self.keep(name + ".weight", "diagonal", n, y)

    def attention(self, x, name):
        s = self.s
        q, k, v = (t.view(s.batch, s.length, s.heads, -1).transpose(1, 2)
                   for t in self.linear(x, name + ".c_attn").split(s.width, 2))
        score = q @ k.transpose(2, 3) / math.sqrt(s.width // s.heads)
        hidden = torch.ones(s.length, s.length, dtype=torch.bool).triu(1)
        y = score.masked_fill(hidden, -math.inf).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(s.batch, s.length, s.width)
        return self.linear(y, name + ".c_proj")

    def forward(self):
        s = self.s
        tokens = torch.tensor(s.tokens)
        x = (self.p["wte.weight"][tokens]
             + self.p["wpe.weight"][:s.length])
        self.keep("wte.weight", "rows", tokens, x)
        positions = torch.arange(s.length).expand(s.batch, -1)
        self.keep("wpe.weight", "rows", positions, x)
        for i in range(s.layers):
            h = "h.%d" % i
            x = x + self.attention(self.norm(x, h + ".ln_1"), h + ".attn")
            y = self.linear(self.norm(x, h + ".ln_2"), h + ".mlp.c_fc")
            y = F.gelu(y, approximate=self.approximate)
            x = x + self.linear(y, h + ".mlp.c_proj")
        self.final = self.norm(x, "ln_f")
        logits = self.linear(self.final, "lm_head")
        return F.cross_entropy(logits.view(-1, VOCABULARY),
                               torch.tensor(s.targets).view(-1))

    def scale(self, name):
        kind, x, y = self.pairs[name]
        d = rows_of(y.grad)
        if kind == "bias":
            return d.norm(dim=0) * math.sqrt(len(d))
        if kind == "linear":
            return torch.outer(d.norm(dim=0), rows_of(x.detach()).norm(dim=0))
        if kind == "diagonal":
            return d.norm(dim=0) * rows_of(x.detach()).norm(dim=0)
        # Row t of an embedding: the rows of dY that hold t, X = 1.
        which = x.reshape(-1)
        square = torch.zeros_like(self.p[name].detach())
        square.index_add_(0, which, d * d)
        counts = torch.bincount(which, minlength=len(square))
        return square.sqrt() * counts.to(d.dtype).sqrt()[:, None]

    def loss_scale(self):
        w = self.p["lm_head.weight"].detach().norm(dim=1).max()
        return float(rows_of(self.final.detach()).norm(dim=1).mean() * w) + 1


def rows_of(t):
    """|v| plus the root mean square of its row, [N][width]."""
    t = t.reshape(-1, t.shape[-1])
    return t.abs() + t.pow(2).mean(dim=1, keepdim=True).sqrt()


def chain(s):
    c, d, t = s.width, s.width // s.heads, s.length
    return (s.layers * 2 * (11 * c + d + 2 * t + 40) + 4 * c + 512
            + s.batch * s.length)


def compare(step, reference):
    """Worst error / (u S sqrt(chain)), over loss and gradients, and where."""
    unit = U * math.sqrt(chain(step))
    worst = (abs(step.loss - float(reference.loss))
             / (unit * reference.loss_scale()), "loss")
    for name, got in step.grad.items():
        wanted = reference.p[name].grad
        error = (torch.tensor(got, dtype=torch.float64) - wanted).abs()
        bound = unit * reference.scale(name)
        # Rows that no token touched: error 0 within bound 0.
        ratio = torch.where(error == 0, 0.0, error / bound).max()
        if not float(ratio) <= worst[0]:
            worst = (float(ratio), name)
    return worst


def main(dump):
    failed = 0
    print("1..%d" % (len(CONFIGS) + 2))
    with tempfile.TemporaryDirectory() as folder:
        for i, config in enumerate(CONFIGS):
            path = "%s/%d" % (folder, i)
            subprocess.run([dump, path, *map(str, config), str(i + 1)],
                           check=True)
            step = Step(path)
            ratio, where = compare(step, Reference(step))
            good = ratio <= LAMBDA
            failed += not good
            print("%sok %d - %s: largest error %.2f of %.0f at %s"
                  % ("" if good else "not ", i + 1, config, ratio, LAMBDA,
                     where), flush=True)
    for name, change in (("erf GELU", {"approximate": "none"}),
                         ("eps 2e-5", {"eps": 2e-5})):
        i += 1
        ratio, where = compare(step, Reference(step, **change))
        noticed = ratio > LAMBDA
        failed += not noticed
        print("%sok %d - %s is noticed: %.0f at %s"
              % ("" if noticed else "not ", i + 1, name, ratio, where))
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        sys.exit(2)
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1]))
