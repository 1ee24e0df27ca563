//! Timestamps of twelve bytes (INT96): which unit Arrow gets, and values that it cannot hold.
//!
//! ```text
//! 12 bytes   nanoseconds of the day (8) · Julian day (4)
//! us         292,000 years either way; nanoseconds that are no whole microsecond are refused
//! ns         1677 to 2262; other years are refused
//! ```
//!
//! # Invariants
//! A value becomes the same moment or an error that names it: no value wraps, none is cut.
//!
//! # Not here
//! INT96 as keys and copied values, which stay twelve bytes (`keys`, `weave`).

use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};
use parquet::basic::Type as Physical;
use parquet::schema::types::SchemaDescriptor;
use plait_core::{Error, Kind};

/// Bytes of a value.
pub(super) const WIDTH: usize = 12;
/// The Julian day of 1970-01-01.
const EPOCH_DAY: i128 = 2_440_588;
const DAY_NANOS: i128 = 86_400_000_000_000;

/// `fields` of a file with leaves `descr`, with microseconds where INT96 is read as nanoseconds.
///
/// Spark, which wrote nearly all such columns, holds timestamps in microseconds; DuckDB reads them
/// so, too.
pub(super) fn in_microseconds(fields: &Fields, descr: &SchemaDescriptor) -> Fields {
    let mut leaf = 0;
    each_leaf(fields, &mut leaf, &mut |leaf, data_type| match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) if is_int96(descr, leaf) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        _ => None,
    })
}

/// `fields` of a file with leaves `descr`, with the units of `target` for INT96, by name.
pub(super) fn in_units_of(fields: &Fields, descr: &SchemaDescriptor, target: &Fields) -> Fields {
    let mut units = Vec::new();
    let mut leaf = 0;
    each_unit(fields, Some(target), &mut units);
    each_leaf(fields, &mut leaf, &mut |leaf, data_type| match (
        data_type,
        units.get(leaf).copied().flatten(),
    ) {
        (DataType::Timestamp(_, zone), Some(unit)) if is_int96(descr, leaf) => {
            Some(DataType::Timestamp(unit, zone.clone()))
        }
        _ => None,
    })
}

/// Adds the unit that `target` has for each leaf of `fields`.
fn each_unit(fields: &Fields, target: Option<&Fields>, units: &mut Vec<Option<TimeUnit>>) {
    for field in fields {
        let wanted = target.and_then(|target| target.find(field.name())).map(|(_, field)| field);
        unit_of(field, wanted, units);
    }
}

fn unit_of(field: &FieldRef, wanted: Option<&FieldRef>, units: &mut Vec<Option<TimeUnit>>) {
    use DataType as T;
    let wanted = wanted.map(|wanted| wanted.data_type());
    match field.data_type() {
        T::Struct(fields) => {
            let wanted = wanted.and_then(|wanted| match wanted {
                T::Struct(fields) => Some(fields),
                _ => None,
            });
            each_unit(fields, wanted, units);
        }
        T::List(below)
        | T::LargeList(below)
        | T::ListView(below)
        | T::LargeListView(below)
        | T::FixedSizeList(below, _)
        | T::Map(below, _) => {
            let wanted = wanted.and_then(|wanted| match wanted {
                T::List(below)
                | T::LargeList(below)
                | T::ListView(below)
                | T::LargeListView(below)
                | T::FixedSizeList(below, _)
                | T::Map(below, _) => Some(below),
                _ => None,
            });
            unit_of(below, wanted, units);
        }
        _ => units.push(match wanted {
            Some(T::Timestamp(unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond), _)) => {
                Some(*unit)
            }
            _ => None,
        }),
    }
}

/// The unit of each leaf that is INT96.
pub(super) fn units(fields: &Fields, descr: &SchemaDescriptor) -> Vec<Option<TimeUnit>> {
    let mut units = vec![None; descr.num_columns()];
    let mut leaf = 0;
    each_leaf(fields, &mut leaf, &mut |leaf, data_type| {
        if let (DataType::Timestamp(unit, _), true) = (data_type, is_int96(descr, leaf)) {
            units[leaf] = Some(*unit);
        }
        None
    });
    units
}

fn is_int96(descr: &SchemaDescriptor, leaf: usize) -> bool {
    leaf < descr.num_columns() && descr.column(leaf).physical_type() == Physical::INT96
}

/// Gives every leaf's number and type to `visit`, which may change the type. Fields of a file have
/// its leaves in its order.
fn each_leaf(
    fields: &Fields,
    leaf: &mut usize,
    visit: &mut dyn FnMut(usize, &DataType) -> Option<DataType>,
) -> Fields {
    fields.iter().map(|field| leaf_of(field, leaf, visit)).collect()
}

fn leaf_of(
    field: &FieldRef,
    leaf: &mut usize,
    visit: &mut dyn FnMut(usize, &DataType) -> Option<DataType>,
) -> FieldRef {
    use DataType as T;
    let changed = match field.data_type() {
        T::Struct(fields) => T::Struct(each_leaf(fields, leaf, visit)),
        T::List(below) => T::List(leaf_of(below, leaf, visit)),
        T::LargeList(below) => T::LargeList(leaf_of(below, leaf, visit)),
        T::ListView(below) => T::ListView(leaf_of(below, leaf, visit)),
        T::LargeListView(below) => T::LargeListView(leaf_of(below, leaf, visit)),
        T::FixedSizeList(below, n) => T::FixedSizeList(leaf_of(below, leaf, visit), *n),
        T::Map(below, sorted) => T::Map(leaf_of(below, leaf, visit), *sorted),
        data_type => {
            let changed = visit(*leaf, data_type);
            *leaf += 1;
            match changed {
                Some(changed) => changed,
                None => return FieldRef::clone(field),
            }
        }
    };
    if changed == *field.data_type() {
        return FieldRef::clone(field);
    }
    FieldRef::new(Field::clone(field).with_data_type(changed))
}

/// Whether `unit` holds the value.
pub(super) fn fits(value: &[u8; WIDTH], unit: TimeUnit) -> bool {
    let nanos = nanoseconds(value);
    let per_unit = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    nanos % per_unit == 0 && i64::try_from(nanos / per_unit).is_ok()
}

/// Nanoseconds since 1970-01-01.
fn nanoseconds(value: &[u8; WIDTH]) -> i128 {
    let mut word = [0; 16];
    word[..WIDTH].copy_from_slice(value);
    let word = u128::from_le_bytes(word);
    let of_day = (word as u64).cast_signed();
    let day = ((word >> 64) as u32).cast_signed();
    (i128::from(day) - EPOCH_DAY) * DAY_NANOS + i128::from(of_day)
}

/// The first of some plain values that `unit` cannot hold.
pub(super) fn first_misfit(plain: &[u8], unit: TimeUnit) -> Option<usize> {
    let (values, _) = plain.as_chunks::<WIDTH>();
    values.iter().position(|value| !fits(value, unit))
}

/// Refuses `value`.
pub(super) fn refuse(value: &[u8], unit: TimeUnit) -> Error {
    let nanos = value.first_chunk::<WIDTH>().map_or(0, nanoseconds);
    let (days, rest) = (nanos.div_euclid(DAY_NANOS), nanos.rem_euclid(DAY_NANOS));
    let (name, hint) = match unit {
        TimeUnit::Nanosecond => (
            "nanoseconds",
            "nanoseconds hold 1677 to 2262: read the column as timestamp[us], for example with \
             `schema` of `scan`",
        ),
        _ => (
            "microseconds",
            "the value has parts of a microsecond: read the column as timestamp[ns], for example \
             with `schema` of `scan`",
        ),
    };
    Error::new(Kind::LossyCast, format!("INT96 timestamp does not fit {name}"))
        .with_got(format!("day {days} since 1970-01-01 and {rest} ns"))
        .with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(day: i32, nanos: i64) -> [u8; WIDTH] {
        let mut bytes = [0; WIDTH];
        bytes[..8].copy_from_slice(&nanos.to_le_bytes());
        bytes[8..].copy_from_slice(&day.to_le_bytes());
        bytes
    }

    #[test]
    fn microseconds_hold_all_years_of_four_digits_and_nanoseconds_do_not() {
        // 9999-12-31 and 0001-01-01.
        for day in [5_373_484, 1_721_426] {
            assert!(fits(&value(day, 0), TimeUnit::Microsecond));
            assert!(!fits(&value(day, 0), TimeUnit::Nanosecond));
        }
        assert!(fits(&value(2_440_588, 1), TimeUnit::Nanosecond));
        assert!(!fits(&value(2_440_588, 1), TimeUnit::Microsecond));
        assert!(!fits(&value(i32::MAX, 0), TimeUnit::Microsecond));
        // The last nanosecond of 64 bits, and the one after it.
        assert!(fits(&value(2_547_339, 85_636_854_775_807), TimeUnit::Nanosecond));
        assert!(!fits(&value(2_547_339, 85_636_854_775_808), TimeUnit::Nanosecond));
    }

    #[test]
    fn the_refused_value_is_named() {
        let e = refuse(&value(2_440_587, -1), TimeUnit::Microsecond);
        assert!(e.to_string().contains("day -2 since 1970-01-01 and 86399999999999 ns"), "{e}");
    }
}
