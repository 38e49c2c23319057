"""What happens to files: bytes that are cut, turned and moved, and values that no writer would write."""

from __future__ import annotations

import copy
import io
import json
import random
import struct
import zipfile
from typing import Any

_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**63 - 1, 2**64 - 1)
_WORDS = (
    *(b"nan", b"NaN", b"inf", b"-inf", b"1e999", b"-0", b"0x1p-3", b"1_000", b"NULL", b"null", b"None", b"", b"true"),
    *(
        b'"',
        b'""',
        b"'",
        b",",
        b";",
        b"\t",
        b"\r",
        b"\n",
        b"\r\n",
        b"\x00",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xed\xa0\x80",
    ),
    *(b"{", b"}", b"[", b"]", b"[" * 300, b'{"a":' * 300, b"\\ud800", b"\\u0000", b"9" * 400, b"1" * 20, b"-", b"=1+1"),
    *(b"label", b"prob_", b"prob_cat", b"score_", b"weight", b"error", b"loss", b"pred", b"*", b"0.5", b"1", b"2"),
)
_VALUES = (
    *(None, True, False, 0, 1, -1, 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), 2**53 + 1, 2**63, 10**400),
    *(
        "",
        "0.5",
        "nan",
        "cat",
        "\ud800",
        "\x00",
        "\u202ecat",
        "<script>",
        "=1+1",
        "a" * 5000,
        [],
        {},
        [[]],
        [1, "a", None],
    ),
    *({"": 0}, [0.5] * 40, {"value": {"a": {"b": []}}}),
)


def damaged(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """The bytes after one to four accidents; `other` is a file that parts may come from."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not found:
            break
        at = rng.randrange(len(found))
        size = min(rng.choice((1, 1, 2, 4, 8, 30, 200)), len(found) - at)
        kind = rng.randrange(10)
        if kind == 0:
            del found[at:]
        elif kind <= 3:
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 4:
            form = rng.choice(("<B", "<H", "<I", "<Q", ">I"))
            width = struct.calcsize(form)
            value = rng.choice(_NUMBERS) & ((1 << 8 * width) - 1)
            found[at : at + width] = struct.pack(form, value)
        elif kind == 5:
            del found[at : at + size]
        elif kind == 6:
            found[at:at] = found[at : at + size]
        elif kind == 7:
            found[at : at + rng.choice((0, 0, size))] = rng.choice(_WORDS)
        elif kind == 8:
            source = other or data
            start = rng.randrange(len(source))
            found[at : at + rng.choice((0, size))] = source[start : start + size]
        else:
            found[at : at + size] = rng.randbytes(size)
    return bytes(found)


def altered(rng: random.Random, data: Any) -> Any:
    """JSON with one to three of its parts changed, lost, doubled or moved; the data that came stay as they are."""
    data = json.loads(json.dumps(data))
    for _ in range(rng.choice((1, 1, 2, 3))):
        places: list[tuple[Any, Any]] = []
        stack = [data]
        while stack:
            held = stack.pop()
            keys = held.keys() if isinstance(held, dict) else range(len(held)) if isinstance(held, list) else ()
            places += [(held, key) for key in keys]
            stack += [held[key] for key in keys]
        if not places:
            return copy.deepcopy(rng.choice(_VALUES))
        held, key = rng.choice(places)
        kind = rng.randrange(8)
        if kind == 0:
            del held[key]
        elif kind == 1:
            source, name = rng.choice(places)
            held[key] = json.loads(json.dumps(source[name])) if name in _keys(source) else None
        elif kind == 2 and isinstance(held, list):
            held.insert(key, copy.deepcopy(held[key]))
        elif kind == 3 and isinstance(held, dict):
            held[rng.choice(("", "new", f"{key} ", str(key).upper(), "__class__", "score_x"))] = held.pop(key)
        elif kind == 4 and isinstance(held[key], int | float) and not isinstance(held[key], bool):
            held[key] = rng.choice((-held[key], held[key] + 1, held[key] * 1e9, held[key] / 3, str(held[key])))
        else:
            held[key] = copy.deepcopy(rng.choice(_VALUES))
    return data


def _keys(held: Any) -> Any:
    return held if isinstance(held, dict) else range(len(held))


def nested(rng: random.Random, depth: int = 100_000) -> bytes:
    """JSON deeper than a stack."""
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    whole = opening * depth + b"1" + closing * depth
    return rng.choice((whole, b'{"schema_version": 1, "label": ' + whole + b"}", whole[: len(whole) // 2]))


_LIES = (
    *("(1000000000000,)", "(1000000000000, 3)", "(0,)", "(0, 3)", "(7, 0)", "(-1,)", "(2,)", "()", "(True,)", "(1e3,)"),
    *("(9223372036854775807,)", "(4294967296, 4294967296)", "(" + "1, " * 40 + ")", "(None,)", "[7]", "7"),
)
_KINDS = (
    *("'|O'", "'<f8'", "'>f8'", "'<f4'", "'<i8'", "'<u8'", "'|b1'", "'<c16'", "'<M8[s]'", "'|S5'", "'<U3'", "'|V8'"),
    *("'<f2'", "[('a', '<f8')]", "'<f99'", "'<U999999999'", "None", "__import__('os').system('true')"),
)


def altered_arrays(rng: random.Random, data: bytes) -> bytes:
    """A zip archive of arrays, whole and with good sums, one member of which says something else of itself."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = rng.choice(list(members))
    held = members[name]
    head = held.find(b"{")
    end = held.find(b"}", head)
    text = held[head : end + 1].decode("latin-1")
    kind = rng.randrange(6)
    if kind == 0:
        text = text[: text.index("'shape':")] + f"'shape': {rng.choice(_LIES)}, }}"
    elif kind == 1:
        text = "{'descr': " + rng.choice(_KINDS) + text[text.index(", 'fortran_order'") :]
    elif kind == 2:
        text = text.replace("False", rng.choice(("True", "None", "2", "'no'")))
    if kind <= 2:
        padded = text.encode("latin-1").ljust(118 - 1) + b"\n"
        members[name] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + held[128:]
    elif kind == 3:
        members[name] = damaged(rng, held)
    elif kind == 4:
        members[rng.choice(("probs.npy", "labels.npy", "score_x.npy", "../x.npy", "classes.npy", "pred.npy"))] = held
    else:
        members[rng.choice(("label", "score_.npy", " ", "score_\ud7ff.npy"))] = members.pop(name)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return out.getvalue()
