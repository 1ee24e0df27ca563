"""Rows of many Arrow arrays as one array, not computed until asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from plait import _native
from plait._checks import _validate

if TYPE_CHECKING:
    from typing_extensions import CapsuleType


class ArrowArray(Protocol):
    """An array of PyArrow, nanoarrow, arro3, or of Plait itself."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[CapsuleType, CapsuleType]:
        """The capsules of the type and of the data."""
        ...


class ArrowArrays(Protocol):
    """A stream of arrays: a chunked array, a series, a table, a reader."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> CapsuleType:
        """The capsule of the stream."""
        ...


class NumPyArray(Protocol):
    """An array of NumPy, which PyArrow converts."""

    def __array__(self) -> object:
        """The array."""
        ...


AnyArray: TypeAlias = ArrowArray | ArrowArrays | NumPyArray


def interleave(
    values: Iterable[AnyArray],
    array_indices: AnyArray,
    row_indices: AnyArray,
    *,
    validate: Literal["basic", "full"] = "basic",
) -> _native.Interleave:
    """Interleaves arrays: row `i` is `values[array_indices[i]][row_indices[i]]`.

    Rows may be repeated, left out and in any order. Nothing is copied until the result is
    handed to an Arrow library (`pyarrow.array(lazy)`, or `pyarrow.chunked_array(lazy)` for a
    stream of chunks), to numpy, or `to_arrow()` is called; slices, `take`, `filter` and
    `concat` are lazy too.

    Args:
        values: At least one array, all of one type up to nullability. A dictionary and its
            value type count as the same; the result is a dictionary only if all are. An
            `Interleave` among them is flattened. Chunked arrays, series of Polars and pandas,
            tables and streams (both of structs) are one value each; their chunks are not joined.
            Arrays of NumPy need PyArrow.
        array_indices: Which array each row comes from: unsigned integers, no nulls.
        row_indices: Which of its rows: unsigned integers, no nulls, as many. Rows of chunks are
            counted through.
        validate: How much of the arrays is checked: `"basic"`, what memory safety relies on
            (offsets, views, keys, lengths), or `"full"`, also every value, as Arrow itself does.

    Returns:
        The lazy array.

    Raises:
        InvalidArgument: Types differ, or a selector is signed, has nulls or another length.
            That a row is not there is found when rows are copied, or by `check_bounds()`.
        CorruptSource: An array is not valid Arrow data; names the column below it.

    Example:
        >>> import pyarrow as pa
        >>> values = [pa.array(["a", "b", "c"]), pa.array(["d", "e"])]
        >>> arrays = pa.array([1, 0, 0, 1], pa.uint8())
        >>> rows = pa.array([0, 2, 2, 1], pa.uint32())
        >>> pa.array(plait.interleave(values, arrays, rows)).to_pylist()
        ['d', 'c', 'c', 'e']
    """
    return _native.interleave(values, array_indices, row_indices, _validate(validate))
