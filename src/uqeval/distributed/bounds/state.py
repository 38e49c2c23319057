"""Rows that come in batches and are not kept: certain bounds on the metrics of all rows seen so far.

A `StreamState` is updated, merged, stored and asked at any time. Its bounds are certain for the rows seen: they are
no confidence interval, which would speak of rows not seen.
Cells are made in `cells`, bounds in `bounds`, files are read in `files`.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import MEND, Float, Int, check_bits, check_lengths, check_vector
from uqeval._errors import InputError, a_type, reason_of
from uqeval.distributed.bounds.bounds import SCHEMA_VERSION, StreamResult, pair_bounds
from uqeval.distributed.bounds.cells import CellAxis, CellCounts, Ruler, coordinates, is_single
from uqeval.metrics.bounds import Bounds, error_bounds

_MAGIC = b"UQSTREAM"
_CHUNK = 1 << 16  # rows at a time: what they need stays in the cache
_SCALE = 1126  # a double times 2^1126 is an integer, also the smallest as frexp splits it
_MOST_JOINT = 8192
_RULERS = ("score", "loss")


class StreamState:
    """Counts that give certain bounds on UQ-AUC, UQ-C-index, AURC and AUGRC of all rows seen, in bounded memory.

    States merge to the same integers in any order and however the rows were cut, also if their workers never talked to
    each other. Values of which there are few are counted one by one: then the bounds are the exact value.

    Parameters
    ----------
    approx : float
        The width (upper − lower) to aim at for UQ-AUC; the result says what was reached. At 1e-4 the counts for
        UQ-AUC take 23 MB at most, at 1e-6 168 MB.
    joint_cells : int, optional
        Cells of the score, and of the loss, for UQ-C-index; its width is about 2/joint_cells with rulers and memory
        8·joint_cells² bytes. By default as many as `approx` asks for, but at most 2,048 (36 MB).
    rulers : pair of Ruler or None
        Where cells of score and loss should lie; `StreamState.from_sample` makes them.

    Examples
    --------
    >>> state = StreamState()
    >>> _ = state.update([0.9, 0.8], error=[1, 0]).update([0.3, 0.8], error=[0, 1])
    >>> state.compute().uq_auc
    Bounds(lower=0.875, upper=0.875)
    """

    def __init__(
        self,
        *,
        approx: float = 1e-4,
        joint_cells: int | None = None,
        rulers: tuple[Ruler | None, Ruler | None] = (None, None),
    ) -> None:
        if isinstance(approx, bool) or not isinstance(approx, int | float) or not 1e-6 <= approx <= 0.5:
            raise InputError(f"`approx` is {approx!r}. Pass a width from 1e-6 to 0.5.")
        if joint_cells is None:
            joint_cells = min(2048, max(64, 1 << math.ceil(math.log2(2.5 / approx))))
        elif not isinstance(joint_cells, int) or not 64 <= joint_cells <= _MOST_JOINT:
            raise InputError(f"`joint_cells` is {joint_cells!r}. Pass an integer from 64 to {_MOST_JOINT}.")
        self.approx, self.joint_cells, self.rulers = float(approx), joint_cells, rulers
        self.n = self._wrong = self._sum = 0
        self._kind: tuple[bool, bool] | None = None  # whether errors and losses come
        # A ruler joins neighbouring values, and tells so by odd coordinates: its axis starts at level 2.
        score, loss = (0 if ruler is None else 2 for ruler in rulers)
        # Without a ruler some cells lie where there is little to see: more of them.
        most = min((16 if rulers[0] is None else 4) * (size := _stretches(approx)), max(1 << 20, 2 * size))
        self._errors = CellCounts(CellAxis(most, score), CellAxis(2))
        self._pairs = CellCounts(CellAxis(joint_cells, score), CellAxis(joint_cells, loss))

    @classmethod
    def from_sample(
        cls, score: ArrayLike, loss: ArrayLike | None = None, *, approx: float = 1e-4, joint_cells: int | None = None
    ) -> StreamState:
        """An empty state whose cells lie where a sample has its rows: narrower bounds, heavy values exact.

        The sample is not counted. Hand `state.empty()` (or its bytes) to workers: only states with the same rulers
        can be merged. About 8/approx rows are enough.

        Examples
        --------
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).random((1000, 2))
        >>> state = StreamState.from_sample(rows[:, 0], rows[:, 1], approx=0.01)
        >>> state.n
        0
        """
        return cls(approx=approx, joint_cells=joint_cells).laid_out(score, loss)

    def laid_out(self, score: ArrayLike, loss: ArrayLike | None) -> StreamState:
        """An empty state with the options of this one whose cells lie where a sample has its rows."""
        cells = _stretches(self.approx) * 7 // 8  # an eighth is left for values outside of the sample
        first, second = (
            None if x is None else Ruler.from_sample(check_vector(name, x, finite=False, hint=MEND), cells)
            for name, x in zip(_RULERS, (score, loss), strict=True)
        )
        return StreamState(approx=self.approx, joint_cells=self.joint_cells, rulers=(first, second))

    def empty(self) -> StreamState:
        """A state without rows that this one can be merged with."""
        return StreamState(approx=self.approx, joint_cells=self.joint_cells, rulers=self.rulers)

    def update(self, score: ArrayLike, error: ArrayLike | None = None, loss: ArrayLike | None = None) -> StreamState:
        """Counts a batch of rows of any size, and returns the state.

        Parameters
        ----------
        score : array-like of shape (n,)
            Uncertainty; higher means less sure. May be infinite.
        error : array-like of shape (n,), optional
            1 where the prediction is wrong, else 0: for UQ-AUC, AURC and AUGRC.
        loss : array-like of shape (n,), optional
            Any finite loss: for UQ-C-index. All batches of a state have the same columns.

        Examples
        --------
        >>> StreamState().update([0.1, 0.4, 0.4, 0.9], loss=[0.0, 0.2, 0.3, 0.3]).compute().uq_c_index.value
        0.9
        """
        s = check_vector("score", score, finite=False, hint=MEND)
        e = None if error is None else check_bits("error", check_vector("error", error, hint=MEND))
        d = None if loss is None else check_vector("loss", loss, hint=MEND)
        if e is None and d is None:
            raise InputError("Neither `error` nor `loss` is given. Pass one of them, or both.")
        check_lengths(0, score=s, error=e, loss=d)
        kind = (e is not None, d is not None)
        if self._kind is not None and kind != self._kind:
            raise InputError(f"This batch has {_named(kind)}, the rows before had {_named(self._kind)}. Pass the same.")
        self._kind = kind
        for k in range(0, len(s), _CHUNK):
            part = slice(k, k + _CHUNK)
            at = coordinates(s[part], self.rulers[0])
            if e is not None:
                self._errors.add(at, e[part].astype(np.int64))
            if d is not None:
                self._pairs.add(at, coordinates(d[part], self.rulers[1]))
                self._sum += _exact_sum(d[part])
            self.n += len(at)
            self._wrong += 0 if e is None else int(np.count_nonzero(e[part]))
        return self

    def merge(self, other: StreamState) -> StreamState:
        """Adds the rows that another state has seen, and returns this one; the other stays as it is.

        Examples
        --------
        >>> a = StreamState().update([0.9, 0.8], error=[1, 0])
        >>> b = StreamState().update([0.3, 0.8], error=[0, 1])
        >>> a.merge(b).n
        4
        """
        given: Any = other
        if not isinstance(given, StreamState):
            raise InputError(f"`other` is {a_type(given)}. Pass a StreamState (StreamState.from_bytes).")
        for name in ("approx", "joint_cells"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise InputError(f"The states have {name} = {mine:g} and {theirs:g}. Make both with the same.")
        if list(map(_ruler_id, self.rulers)) != list(map(_ruler_id, other.rulers)):
            raise InputError("The states have different rulers. Make one state from a sample and give out .empty().")
        if other._kind is None:
            return self
        if self._kind is not None and self._kind != other._kind:
            raise InputError(f"One state has {_named(self._kind)}, the other {_named(other._kind)}. Use the same.")
        self._kind = other._kind
        self._errors.merge(other._errors)
        self._pairs.merge(other._pairs)
        self.n += other.n
        self._wrong += other._wrong
        self._sum += other._sum
        return self

    def compute(self) -> StreamResult:
        """The bounds for all rows seen so far; the state can go on.

        Examples
        --------
        >>> print(StreamState().update([0.9, 0.8, 0.3, 0.8], error=[1, 0, 0, 1]).compute())
        4 rows, 2 errors
        accuracy    0.50000 (exact)
        UQ-AUC      0.87500 (exact)
        AURC        0.27083 (exact)
        AUGRC       0.15625 (exact)
        Bounds for the rows seen, not a confidence interval.
        """
        if self.n == 0:
            raise InputError("The state has seen no rows. Call update first.")
        has_error, has_loss = self._kind or (False, False)
        auc, areas = self._of_errors() if has_error else (None, (None, None))
        return StreamResult(
            n=self.n,
            n_errors=self._wrong if has_error else None,
            accuracy=(self.n - self._wrong) / self.n if has_error else None,
            mean_loss=self._sum / (self.n << _SCALE) if has_loss else None,
            uq_auc=auc,
            uq_c_index=Bounds(*pair_bounds(self._pairs)) if has_loss else None,
            aurc=areas[0],
            augrc=areas[1],
            approx=self.approx,
            cells=(len(self._errors.axes[0]), len(self._pairs.axes[0]), len(self._pairs.axes[1])),
            bytes=self._errors.nbytes + self._pairs.nbytes,
        )

    def _of_errors(self) -> tuple[Bounds, tuple[Bounds, Bounds]]:
        cells, bits, counts = self._errors.in_order()
        right, wrong = (counts[:, bits == bit].sum(axis=1) for bit in (0, 1))
        auc, aurc, augrc = error_bounds(is_single(cells, self._errors.axes[0].level), right, wrong)
        return auc, (aurc, augrc)

    # ---- storing ----------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The state as bytes that `from_bytes` reads: no pickle, with a version and a checksum.

        Equal data give equal bytes (of one zlib), in whatever order they came.
        """
        arrays: dict[str, Int] = {}
        for name, ruler in zip(_RULERS, self.rulers, strict=True):
            if ruler is not None:
                arrays |= {f"{name}_edges": ruler.edges, f"{name}_codes": ruler.codes}
        for name, table in (("errors", self._errors), ("pairs", self._pairs)):
            arrays |= {f"{name}_{k}": array for k, array in enumerate(table.to_arrays())}
        head = {
            "version": SCHEMA_VERSION,
            "approx": self.approx,
            "joint_cells": self.joint_cells,
            "rulers": [None if ruler is None else ruler.level for ruler in self.rulers],
            "kind": self._kind,
            "n": self.n,
            "wrong": self._wrong,
            "sum": hex(self._sum),
            "levels": [axis.level for table in (self._errors, self._pairs) for axis in table.axes],
            "arrays": {name: len(array) for name, array in arrays.items()},
        }
        text = json.dumps(head).encode()
        data = b"".join(array.astype("<i8").tobytes() for array in arrays.values())
        body = struct.pack("<I", len(text)) + text + zlib.compress(data, 1)
        return _MAGIC + hashlib.sha256(body).digest() + body

    @classmethod
    def from_bytes(cls, data: bytes) -> StreamState:
        """The state that `to_bytes` wrote.

        Examples
        --------
        >>> state = StreamState().update([0.9, 0.8], error=[1, 0])
        >>> StreamState.from_bytes(state.to_bytes()) == state
        True
        """
        try:
            return _rebuilt(*_unpack(data))
        except InputError:
            raise
        except (zlib.error, struct.error, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise InputError(
                f"These bytes are not a whole StreamState ({reason_of(error)}). Pass what to_bytes wrote."
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamState) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"StreamState({self.n:,} rows, approx={self.approx:g})"

    def __reduce__(self) -> Any:
        return StreamState.from_bytes, (self.to_bytes(),)


def _stretches(approx: float) -> int:
    """Stretches of a ruler that reach a width, sample noise included: a power of two."""
    return max(256, 1 << math.ceil(math.log2(1.1 / approx)))


def _named(kind: tuple[bool, bool]) -> str:
    return " and ".join(name for name, there in zip(("errors", "losses"), kind, strict=True) if there)


def _ruler_id(ruler: Ruler | None) -> bytes | None:
    return None if ruler is None else ruler.edges.tobytes() + ruler.codes.tobytes()


def _exact_sum(x: Float) -> int:
    """Σx·2^1126 as an integer: no rounding, so no order."""
    if len(x) == 0:
        return 0
    part, exponent = np.frexp(x)
    part = part * 2.0**27
    high = np.trunc(part)
    lowest = int(exponent.min())
    place = exponent - lowest
    # At most 2^16 rows of at most 27 bits: float sums of these are exact.
    sums = [np.bincount(place, weights=piece) for piece in (high, (part - high) * 2.0**26)]
    total = 0
    for k in np.flatnonzero((sums[0] != 0) | (sums[1] != 0)).tolist():
        total += ((int(sums[0][k]) << 26) + int(sums[1][k])) << (k + lowest + _SCALE - 53)
    return total


def _unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Int]]:
    """Header and arrays, after the checksum."""
    given: Any = data
    if not isinstance(given, bytes | bytearray | memoryview):
        raise InputError(f"`data` is {a_type(given)}. Pass the bytes that to_bytes wrote.")
    data = bytes(data)
    if not data.startswith(_MAGIC) or len(data) < 44:
        raise InputError("These bytes are not a StreamState. Pass what to_bytes wrote.")
    body = data[40:]
    if hashlib.sha256(body).digest() != data[8:40]:
        raise InputError("The checksum of this StreamState is wrong: it was cut or changed. Fetch it again.")
    (size,) = struct.unpack("<I", body[:4])
    head = json.loads(body[4 : 4 + size])
    if (version := head.get("version")) != SCHEMA_VERSION:
        raise InputError(f"This StreamState has version {version!r}; this uqeval reads {SCHEMA_VERSION}.")
    sizes: dict[str, int] = head["arrays"]
    expected = 8 * sum(sizes.values())
    content = zlib.decompressobj().decompress(body[4 + size :], expected + 1)
    if len(content) != expected:
        raise InputError("This StreamState holds too few or too many numbers. Fetch it again.")
    flat = np.frombuffer(content, dtype="<i8").astype(np.int64)
    ends = np.cumsum(list(sizes.values()))[:-1]
    return head, dict(zip(sizes, np.split(flat, ends), strict=True))


def _rebuilt(head: dict[str, Any], arrays: dict[str, Int]) -> StreamState:
    first, second = (
        None if level is None else Ruler(arrays[f"{name}_edges"], arrays[f"{name}_codes"], int(level))
        for name, level in zip(_RULERS, head["rulers"], strict=True)
    )
    if not all(ruler is None or ruler.sound for ruler in (first, second)):
        raise ValueError("a ruler is not in order")
    state = StreamState(approx=head["approx"], joint_cells=head["joint_cells"], rulers=(first, second))
    errors, losses = map(bool, head["kind"] or (False, False))
    state._kind = None if head["kind"] is None else (errors, losses)
    state.n, state._wrong, state._sum = int(head["n"]), int(head["wrong"]), int(head["sum"], 16)
    levels = [int(level) for level in head["levels"]]
    tables = [[arrays[f"{name}_{k}"] for k in range(4)] for name in ("errors", "pairs")]
    state._errors = state._errors.from_arrays(levels[:2], tables[0], state.n * errors)
    state._pairs = state._pairs.from_arrays(levels[2:], tables[1], state.n * losses)
    _, bits, counts = state._errors.in_order()
    if not np.isin(bits, (0, 1)).all():
        raise ValueError("it has errors other than 0 and 1")
    if int(counts[:, bits == 1].sum()) != state._wrong:
        raise ValueError("its errors do not add up")
    return state
