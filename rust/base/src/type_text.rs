//! Arrow types in the words of PyArrow, for messages and reports.
//!
//! ```text
//! Timestamp(Microsecond, Some("UTC"))  ─▶  timestamp[us, tz=UTC]
//! Utf8                                 ─▶  string
//! ```
//!
//! # Invariants
//! The text is for people: nothing parses it, and no digest is made of it.

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit, UnionMode};

/// A type as PyArrow prints it; whether a dictionary is ordered is left out.
///
/// ```
/// use arrow_schema::{DataType, TimeUnit};
/// use plait_base::type_text;
///
/// let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
/// assert_eq!(type_text(&utc), "timestamp[us, tz=UTC]");
/// ```
#[must_use]
pub fn type_text(data_type: &DataType) -> String {
    use DataType as T;
    let plain = match data_type {
        T::Null => "null",
        T::Boolean => "bool",
        T::Int8 => "int8",
        T::Int16 => "int16",
        T::Int32 => "int32",
        T::Int64 => "int64",
        T::UInt8 => "uint8",
        T::UInt16 => "uint16",
        T::UInt32 => "uint32",
        T::UInt64 => "uint64",
        T::Float16 => "halffloat",
        T::Float32 => "float",
        T::Float64 => "double",
        T::Date32 => "date32[day]",
        T::Date64 => "date64[ms]",
        T::Interval(IntervalUnit::YearMonth) => "month_interval",
        T::Interval(IntervalUnit::DayTime) => "day_time_interval",
        T::Interval(IntervalUnit::MonthDayNano) => "month_day_nano_interval",
        T::Utf8 => "string",
        T::LargeUtf8 => "large_string",
        T::Utf8View => "string_view",
        T::Binary => "binary",
        T::LargeBinary => "large_binary",
        T::BinaryView => "binary_view",
        other => return with_parameters(other),
    };
    plain.to_owned()
}

fn with_parameters(data_type: &DataType) -> String {
    use DataType as T;
    let list = |name: &str, item: &Field| format!("{name}<{}>", field_text(item));
    match data_type {
        T::Timestamp(unit, None) => format!("timestamp[{}]", unit_text(*unit)),
        T::Timestamp(unit, Some(zone)) => format!("timestamp[{}, tz={zone}]", unit_text(*unit)),
        T::Time32(unit) => format!("time32[{}]", unit_text(*unit)),
        T::Time64(unit) => format!("time64[{}]", unit_text(*unit)),
        T::Duration(unit) => format!("duration[{}]", unit_text(*unit)),
        T::FixedSizeBinary(bytes) => format!("fixed_size_binary[{bytes}]"),
        T::Decimal32(precision, scale) => format!("decimal32({precision}, {scale})"),
        T::Decimal64(precision, scale) => format!("decimal64({precision}, {scale})"),
        T::Decimal128(precision, scale) => format!("decimal128({precision}, {scale})"),
        T::Decimal256(precision, scale) => format!("decimal256({precision}, {scale})"),
        T::List(item) => list("list", item),
        T::LargeList(item) => list("large_list", item),
        T::ListView(item) => list("list_view", item),
        T::LargeListView(item) => list("large_list_view", item),
        T::FixedSizeList(item, size) => format!("{}[{size}]", list("fixed_size_list", item)),
        T::Struct(fields) => {
            let fields: Vec<String> = fields.iter().map(|field| field_text(field)).collect();
            format!("struct<{}>", fields.join(", "))
        }
        T::Map(entries, is_sorted) => {
            let sorted = if *is_sorted { ", keys_sorted" } else { "" };
            match entries.data_type() {
                T::Struct(pair) if pair.len() == 2 => {
                    let sides: Vec<String> =
                        pair.iter().map(|side| type_text(side.data_type())).collect();
                    format!("map<{}{sorted}>", sides.join(", "))
                }
                other => format!("map<{}{sorted}>", type_text(other)),
            }
        }
        T::Union(fields, mode) => {
            let mode = if *mode == UnionMode::Dense { "dense" } else { "sparse" };
            let fields: Vec<String> =
                fields.iter().map(|(id, field)| format!("{}={id}", field_text(field))).collect();
            format!("{mode}_union<{}>", fields.join(", "))
        }
        T::Dictionary(keys, values) => {
            format!("dictionary<values={}, indices={}>", type_text(values), type_text(keys))
        }
        T::RunEndEncoded(ends, values) => {
            let (ends, values) = (type_text(ends.data_type()), type_text(values.data_type()));
            format!("run_end_encoded<run_ends: {ends}, values: {values}>")
        }
        // A type that a later Arrow adds.
        other => other.to_string(),
    }
}

/// `a: int64 not null`.
fn field_text(field: &Field) -> String {
    let not_null = if field.is_nullable() { "" } else { " not null" };
    format!("{}: {}{not_null}", field.name(), type_text(field.data_type()))
}

fn unit_text(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::UnionFields;

    use super::*;

    #[test]
    fn types_are_in_the_words_of_pyarrow() {
        use DataType as T;
        let field = |name: &str, ty: &DataType, nullable| Field::new(name, ty.clone(), nullable);
        let item = |ty: DataType| Arc::new(field("element", &ty, true));
        let pair = vec![field("key", &T::Utf8, false), field("value", &T::Int64, true)];
        let entries = Arc::new(Field::new("entries", T::Struct(pair.clone().into()), false));
        let union = UnionFields::try_new([0, 5], pair.clone()).unwrap();
        for (ty, text) in [
            (T::Timestamp(TimeUnit::Nanosecond, None), "timestamp[ns]"),
            (
                T::Timestamp(TimeUnit::Second, Some("Europe/Paris".into())),
                "timestamp[s, tz=Europe/Paris]",
            ),
            (T::Time32(TimeUnit::Millisecond), "time32[ms]"),
            (T::Duration(TimeUnit::Microsecond), "duration[us]"),
            (T::Float32, "float"),
            (T::Date32, "date32[day]"),
            (T::Decimal128(10, 2), "decimal128(10, 2)"),
            (T::FixedSizeBinary(16), "fixed_size_binary[16]"),
            (T::List(item(T::Int64)), "list<element: int64>"),
            (T::FixedSizeList(item(T::Float64), 3), "fixed_size_list<element: double>[3]"),
            (T::Struct(pair.into()), "struct<key: string not null, value: int64>"),
            (T::Map(Arc::clone(&entries), false), "map<string, int64>"),
            (T::Map(entries, true), "map<string, int64, keys_sorted>"),
            (
                T::Union(union, UnionMode::Sparse),
                "sparse_union<key: string not null=0, value: int64=5>",
            ),
            (
                T::Dictionary(Box::new(T::Int32), Box::new(T::LargeUtf8)),
                "dictionary<values=large_string, indices=int32>",
            ),
            (
                T::RunEndEncoded(item(T::Int16), item(T::Boolean)),
                "run_end_encoded<run_ends: int16, values: bool>",
            ),
        ] {
            assert_eq!(type_text(&ty), text);
        }
    }
}
