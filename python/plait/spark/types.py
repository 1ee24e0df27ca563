"""Arrow types as Spark takes them: what is passed on, what is converted, what is refused.

    file or stream ──▶ Arrow batch ──▶ here ──▶ Arrow batch that the JVM takes ──▶ Spark

Spark's JVM refuses dictionaries, large and fixed-size lists, views, unsigned numbers and all units
of timestamps but microseconds. They are converted where nothing is lost; `converted` says what.

Invariants: a batch that leaves has the very schema that was declared; a value that does not fit is
`LossyCast` unless `truncate` was asked for; nulls stay where they are at every level.
Cost: columns that need nothing are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from plait.errors import LossyCast, SchemaConflict

Lossy = Literal["error", "truncate"]

_MOST_DIGITS = 38
_MICROS_PER_MILLI = 1_000

_SIMPLE: tuple[tuple[pa.DataType, st.DataType], ...] = (
    (pa.null(), st.NullType()),
    (pa.bool_(), st.BooleanType()),
    (pa.int8(), st.ByteType()),
    (pa.int16(), st.ShortType()),
    (pa.int32(), st.IntegerType()),
    (pa.int64(), st.LongType()),
    (pa.uint8(), st.ShortType()),
    (pa.uint16(), st.IntegerType()),
    (pa.uint32(), st.LongType()),
    (pa.uint64(), st.DecimalType(20, 0)),
    (pa.float16(), st.FloatType()),
    (pa.float32(), st.FloatType()),
    (pa.float64(), st.DoubleType()),
    (pa.date32(), st.DateType()),
    (pa.date64(), st.DateType()),
)


def spark_type(type_: pa.DataType) -> st.DataType:
    """The Spark type that holds all values of an Arrow type.

    Args:
        type_: The type, however nested.

    Raises:
        SchemaConflict: Spark has no such type.

    Example:
        >>> spark_type(pa.list_(pa.uint32()))
        ArrayType(LongType(), True)
    """
    for arrow, spark in _SIMPLE:
        if type_ == arrow:
            return spark
    if isinstance(type_, pa.BaseExtensionType):
        # PyArrow's own boolean of eight bits is a boolean, whatever it is stored as.
        is_bool = type_.extension_name == "arrow.bool8"
        return st.BooleanType() if is_bool else spark_type(type_.storage_type)
    t = pa.types
    if t.is_dictionary(type_):
        return spark_type(type_.value_type)
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return st.StringType()
    if _is_binary(type_):
        return st.BinaryType()
    if t.is_time(type_) or t.is_duration(type_):
        # Spark has days to seconds for durations; times of day are counted in their unit.
        return st.DayTimeIntervalType() if t.is_duration(type_) else st.LongType()
    if t.is_timestamp(type_):
        return st.TimestampNTZType() if type_.tz is None else st.TimestampType()
    if t.is_decimal(type_):
        fits = type_.precision <= _MOST_DIGITS and 0 <= type_.scale <= type_.precision
        return st.DecimalType(type_.precision, type_.scale) if fits else st.StringType()
    if t.is_map(type_):
        return st.MapType(spark_type(type_.key_type), spark_type(type_.item_type))
    if t.is_struct(type_):
        return st.StructType([st.StructField(f.name, spark_type(f.type)) for f in type_])
    if _is_list(type_):
        return st.ArrayType(spark_type(type_.value_type))
    raise SchemaConflict.of(
        "Spark has no type for a column", got=f"`{type_}`", hint="leave it out with `columns`"
    )


def spark_schema(schema: pa.Schema) -> st.StructType:
    """The Spark schema of an Arrow schema; everything may be null, as in Spark's own files.

    Raises:
        SchemaConflict: Spark has no type for a column, two columns have one name, or there is none.

    Example:
        >>> spark_schema(pa.schema({"k": pa.int32(), "t": pa.dictionary(pa.int8(), pa.string())}))
        StructType([StructField('k', IntegerType(), True), StructField('t', StringType(), True)])
    """
    if not schema.names:
        # Batches without columns would lose the number of their rows on the way.
        raise SchemaConflict.of("a DataFrame needs a column", hint="name one in `columns`")
    fields = []
    for field in schema:
        try:
            fields.append(st.StructField(field.name, spark_type(field.type)))
        except SchemaConflict as error:
            error.column = field.name
            raise
    if len({field.name.lower() for field in fields}) < len(fields):
        raise SchemaConflict.of(
            "two columns have one name in Spark",
            got=", ".join(f"`{name}`" for name in schema.names),
            hint="leave one of them out with `columns`",
        )
    return st.StructType(fields)


def edge_schema(schema: st.StructType) -> pa.Schema:
    """The Arrow schema that Spark's JVM wants for a Spark schema."""
    made: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return made


def converted(schema: pa.Schema) -> dict[str, str]:
    """The columns whose type changes: the type in Arrow, and the type in Spark.

    Example:
        >>> converted(pa.schema({"k": pa.int32(), "n": pa.uint8()}))
        {'n': 'uint8 becomes smallint'}
    """
    spark = spark_schema(schema)
    edge = edge_schema(spark)
    return {
        field.name: f"{field.type} becomes {there.dataType.simpleString()}"
        for field, there, wanted in zip(schema, spark.fields, edge, strict=True)
        if not _is_passed(field.type, wanted.type)
    }


def _is_passed(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether values are what they were: names inside of lists and maps do not count."""
    t = pa.types
    if t.is_list(have) and t.is_list(want):
        return _is_passed(have.value_type, want.value_type)
    if t.is_map(have) and t.is_map(want):
        return _is_passed(have.key_type, want.key_type) and _is_passed(
            have.item_type, want.item_type
        )
    if t.is_struct(have) and t.is_struct(want):
        return all(_is_passed(h.type, w.type) for h, w in zip(have, want, strict=True))
    if t.is_timestamp(have) and t.is_timestamp(want):
        return bool(have.unit == want.unit and (have.tz is None) == (want.tz is None))
    return bool(have == want)


def to_spark(batch: pa.RecordBatch, schema: pa.Schema, *, lossy: Lossy = "error") -> pa.RecordBatch:
    """A batch as Spark's JVM takes it.

    Args:
        batch: The batch. Its columns are found by name; others than those of `schema` are left out.
        schema: What `edge_schema` gave.
        lossy: Whether nanoseconds below a microsecond are an error, or are cut off.

    Raises:
        LossyCast: A value does not fit; names the column.
        SchemaConflict: A column is missing, or has a type that cannot become the declared one.

    Example:
        >>> batch = pa.record_batch({"n": pa.array([1, None], pa.uint8())})
        >>> to_spark(batch, edge_schema(spark_schema(batch.schema))).schema.field("n").type
        DataType(int16)
    """
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            raise SchemaConflict.of(
                f"a batch does not have column `{field.name}` that was declared",
                got=", ".join(batch.schema.names),
            )
        try:
            columns.append(_convert(batch.column(index), field.type, lossy))
        except pa.ArrowInvalid as cause:
            lost = LossyCast.of(
                f"column `{field.name}` has a value that Spark cannot hold",
                got=str(cause),
                hint='pass lossy="truncate" to cut off what is below a microsecond',
            )
            lost.column = field.name
            raise lost from cause
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as cause:
            wrong = SchemaConflict.of(
                f"column `{field.name}` is not `{field.type}`", got=str(cause)
            )
            wrong.column = field.name
            raise wrong from cause
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def bounded(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `rows` rows; Spark does not cut what it is given."""
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _convert(array: pa.Array, type_: pa.DataType, lossy: Lossy) -> pa.Array:
    have, t = array.type, pa.types
    if have == type_:
        return array
    if isinstance(have, pa.BaseExtensionType):
        return _convert(array.storage, type_, lossy)
    if t.is_dictionary(have):
        return _convert(array.dictionary_decode(), type_, lossy)
    if t.is_map(type_):
        return _map(array, type_, lossy)
    if t.is_list(type_):
        values, offsets, holes = _lists(array)
        inner = _convert(values, type_.value_type, lossy)
        return pa.ListArray.from_arrays(offsets, inner, type=type_, mask=holes)
    if t.is_struct(type_) and t.is_struct(have):
        children = dict(zip((f.name for f in have), array.flatten(), strict=True))
        made = [_convert(children[f.name], f.type, lossy) for f in type_ if f.name in children]
        if len(made) < type_.num_fields:
            raise pa.ArrowTypeError(f"{have} does not have the fields of {type_}")
        if not made:  # a struct without fields
            return pa.array([None if row is None else {} for row in array.to_pylist()], type_)
        return pa.StructArray.from_arrays(made, fields=list(type_), mask=array.is_null())
    return _leaf(array, type_, lossy)


def _leaf(array: pa.Array, type_: pa.DataType, lossy: Lossy) -> pa.Array:
    have, t = array.type, pa.types
    if t.is_integer(type_) and t.is_time(have):
        array = array.cast(pa.int32() if have.bit_width == 32 else pa.int64())  # noqa: PLR2004 - bits
    if t.is_fixed_size_binary(have) and t.is_binary(type_):
        return array.cast(pa.binary())
    if t.is_uint64(have) and t.is_decimal(type_):
        return array.cast(type_)
    if t.is_decimal(have) and t.is_string(type_):
        # Never with an exponent, as Spark writes decimals.
        texts = [None if v is None else format(v, "f") for v in array.to_pylist()]
        return pa.array(texts, type_)
    has_unit = t.is_timestamp(have) or t.is_duration(have)
    if lossy == "truncate" and has_unit and have.unit == "ns":
        # Towards the past: what Spark does with values finer than its own.
        finer = _MICROS_PER_MILLI
        counts = array.cast(pa.int64())
        down = pc.divide(counts, finer)
        below = pc.less(pc.multiply(down, finer), counts)
        over = pc.and_(pc.invert(below), pc.not_equal(pc.multiply(down, finer), counts))
        return pc.if_else(over, pc.subtract(down, 1), down).cast(type_)
    return array.cast(type_, safe=True)


def _lists(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Values without those of nulls, where each list begins, which are null."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
    return array.flatten(), offsets, array.is_null()


def _map(array: pa.Array, type_: pa.DataType, lossy: Lossy) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise pa.ArrowTypeError(f"{array.type} is not a map")
    ends = array.offsets.to_numpy()
    holes = array.is_null()
    lengths = np.diff(ends)
    valid = ~holes.to_numpy(zero_copy_only=False)
    # Nulls may have entries, of which nobody knows.
    has_entry = pa.array(np.repeat(valid, lengths))
    keys, items = (
        _convert(part.slice(ends[0], ends[-1] - ends[0]).filter(has_entry), of, lossy)
        for part, of in ((array.keys, type_.key_type), (array.items, type_.item_type))
    )
    offsets = np.concatenate([[0], np.cumsum(np.where(valid, lengths, 0))]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=type_, mask=holes)


def _is_binary(type_: pa.DataType) -> bool:
    t = pa.types
    kinds = (t.is_binary, t.is_large_binary, t.is_binary_view, t.is_fixed_size_binary)
    return any(kind(type_) for kind in kinds)


def _is_list(type_: pa.DataType) -> bool:
    t = pa.types
    kinds = (
        t.is_list,
        t.is_large_list,
        t.is_fixed_size_list,
        t.is_list_view,
        t.is_large_list_view,
    )
    return any(kind(type_) for kind in kinds)
