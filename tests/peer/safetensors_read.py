# SPDX-License-Identifier: Apache-2.0
"""Exported files, read by other people's code; files of others, imported.

The reader and the writer below know the format from its description alone and
share nothing with the library.  The safetensors package and PyTorch are asked
too where they are installed.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

DRIVER = os.path.join(os.environ.get("GYRE_TOP_BUILD", "."),
                      "tests/peer/st_driver")
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "U16": "<u2"}

count = 0
failed = 0


def result(good, name, note=""):
    global count, failed
    count += 1
    failed += not good
    print("%s %d - %s%s" % ("ok" if good else "not ok", count, name,
                            " # " + note if note else ""))


def skip(name, why):
    result(True, name, "SKIP " + why)


def read(path):
    """Metadata and arrays by name, with every rule of the format checked."""
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    text = data[8:8 + n]
    assert text[:1] == b"{" and n % 8 == 0 and n <= 100000000
    header = json.loads(text.decode("utf-8"))
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(v, str) for v in metadata.values())
    body = data[8 + n:]
    arrays, at = {}, 0
    for name, t in sorted(header.items(), key=lambda x: x[1]["data_offsets"]):
        begin, end = t["data_offsets"]
        assert begin == at, "a gap or an overlap before " + name
        at = end
        arrays[name] = np.frombuffer(body[begin:end],
                                     DTYPES[t["dtype"]]).reshape(t["shape"])
    assert at == len(body)
    return metadata, arrays


def write(path, arrays, metadata=None):
    """`arrays`: name -> (dtype of the format, bytes-like array)."""
    header, at, parts = {}, 0, []
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, array) in arrays.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        parts.append(raw)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def drive(*arguments):
    """The driver's lines: head, and name -> (step, array)."""
    out = subprocess.run([DRIVER] + list(arguments), check=True,
                         stdout=subprocess.PIPE).stdout.decode("utf-8")
    lines = out.rstrip("\n").split("\n")
    held = {}
    for line in lines[1:]:
        name, shape, step, raw = line.split("\t")
        shape = [int(x) for x in shape.split(",") if x]
        held[name] = (int(step), np.frombuffer(bytes.fromhex(raw),
                                               "<f4").reshape(shape))
    return lines[0].split("\t"), held


def same(a, b):
    """Bit for bit; numpy compares NaN and zeros otherwise."""
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def check_export(head, held, path):
    metadata, arrays = read(path)
    result(set(arrays) == set(held), "the file has every parameter and slot")
    result(all(same(arrays[k], held[k][1]) for k in held),
           "numpy reads the values bit for bit")
    steps = json.loads(metadata["gyre.steps"])
    result(metadata["gyre.digest"] == head[0] and
           metadata["gyre.step"] == head[1] and
           metadata["gyre.optimizer"] == head[2] and
           all(held[k][0] == v for k, v in steps.items()) and
           len(set(steps.values())) == 2 and "frozen" not in steps,
           "metadata say digest, step, optimizer and each tensor's step")
    return arrays


def check_packages(held, path):
    try:
        from safetensors.numpy import load_file
    except ImportError:
        skip("the safetensors package reads it", "safetensors not installed")
    else:
        arrays = load_file(path)
        result(all(same(arrays[k], held[k][1]) for k in held),
               "the safetensors package reads it")
    try:
        import torch
    except ImportError:
        skip("PyTorch takes the arrays", "python3-torch not installed")
        return
    _, arrays = read(path)
    tensors = {k: torch.from_numpy(v.copy()) for k, v in arrays.items()}
    result(all(same(tensors[k].numpy(), held[k][1]) for k in held) and
           tensors["scalar"].dim() == 0, "PyTorch takes the arrays")


def round_bf16(x):
    """f32 to bf16 bits, nearest even."""
    bits = x.view("<u4").astype(np.uint64)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype("<u2")


def check_import(folder, path, held):
    weight, bias = "layer.0/weight", 'layer.0.bias "\u00e9\\'
    rng = np.random.default_rng(1)
    w = rng.standard_normal((60, 100))
    b = (rng.standard_normal(7) * 1e-3).astype("<f4")
    h = rng.standard_normal((2, 3, 5)).astype("<f2")
    write(path, {weight: ("F64", w.astype("<f8")),
                 "frozen": ("F16", h),
                 "exp_avg/" + bias: ("BF16", round_bf16(b))})
    _, now = drive("import", folder, path)
    result(same(now[weight][1], w.astype("<f4")), "f64 is rounded once")
    result(same(now["frozen"][1], h.astype("<f4")), "f16 is widened")
    wide = (round_bf16(b).astype("<u4") << 16).view("<f4")
    result(same(now["exp_avg/" + bias][1], wide), "bf16 is widened")
    rest = [k for k in held if k not in (weight, "frozen", "exp_avg/" + bias)]
    result(all(same(now[k][1], held[k][1]) and now[k][0] == held[k][0]
               for k in rest), "what the file lacks stays")
    try:
        import torch
    except ImportError:
        skip("PyTorch rounds as we read", "python3-torch not installed")
        return
    t = torch.from_numpy(b).bfloat16()
    result(same(t.float().numpy(), now["exp_avg/" + bias][1]),
           "PyTorch rounds as we read")


def main():
    with tempfile.TemporaryDirectory() as top:
        folder = os.path.join(top, "store")
        path = os.path.join(top, "x.safetensors")
        head, held = drive("export", folder, path)
        check_export(head, held, path)
        check_packages(held, path)
        # others may write the same values in another order, with more blanks
        _, arrays = read(path)
        write(path, {k: ("F32", arrays[k]) for k in sorted(arrays)})
        again, now = drive("import", folder, path)
        result(again == head and
               all(same(now[k][1], held[k][1]) for k in held),
               "written by numpy and imported it is the same store")
        check_import(folder, path, held)
    print("1..%d" % count)
    return failed != 0


sys.exit(main())
