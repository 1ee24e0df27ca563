//! The laws of ranks: ranked keys are in the order of stored ones and translate back to them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::laws::{any_column, column, compare, dense, encode_dense, rows, shape};
use super::*;
use plait_base::Kind;

/// The values of column `i` that are there, as numbers, if they are such.
fn numbers_of(ty: KeyType, rows: &[Vec<KeyValue>], i: usize) -> Option<Vec<u64>> {
    let values: Vec<KeyValue> = rows.iter().map(|row| row[i].clone()).collect();
    let d = dense(ty, &values);
    let plain: Vec<u8> = match ty {
        KeyType::Boolean => d.booleans.iter().map(|v| u8::from(*v)).collect(),
        KeyType::Int32 | KeyType::UInt32 => d.int32.iter().flat_map(|v| v.to_le_bytes()).collect(),
        KeyType::Int64 | KeyType::UInt64 => d.int64.iter().flat_map(|v| v.to_le_bytes()).collect(),
        KeyType::Float32 => d.float.iter().flat_map(|v| v.to_le_bytes()).collect(),
        KeyType::Float64 => d.double.iter().flat_map(|v| v.to_le_bytes()).collect(),
        KeyType::Float16 => d.bytes.concat(),
        _ => return None,
    };
    let mut found = Vec::new();
    numbers(ty, &plain, &mut found).unwrap();
    Some(found)
}

/// Ranks for the columns in `ranked` that can have them, as wide apart as `slack` says.
fn ranks_of(stored: &KeyShape, rows: &[Vec<KeyValue>], ranked: &[bool], slack: u64) -> Ranks {
    let mut columns = Vec::new();
    for (i, column) in stored.columns().iter().enumerate() {
        let has_null = slack > 0 || rows.iter().any(|row| row[i] == KeyValue::Null);
        let of = if !ranked[i] {
            RankOf::Stored
        } else if let KeyType::Bytes { .. } = column.ty {
            let values: Vec<KeyValue> = rows.iter().map(|row| row[i].clone()).collect();
            let distinct: BTreeSet<Vec<u8>> = dense(column.ty, &values).bytes.into_iter().collect();
            let mut sorted = KeyBytes::default();
            distinct.iter().for_each(|value| sorted.push(value));
            RankOf::Values(sorted.into())
        } else if let Some(found) = numbers_of(column.ty, rows, i) {
            let (least, most) = (found.iter().min(), found.iter().max());
            let base = least.copied().unwrap_or(0).saturating_sub(slack);
            let span = most.copied().unwrap_or(0).saturating_add(slack) - base;
            if span == u64::MAX { RankOf::Stored } else { RankOf::Numbers { base, span } }
        } else {
            RankOf::Stored
        };
        columns.push((of, has_null));
    }
    Ranks::try_new(stored.clone(), columns).unwrap()
}

/// The ranked key of each row, column by column.
fn ranked_keys(ranks: &Ranks, rows: &[Vec<KeyValue>]) -> Vec<Vec<u8>> {
    let stored = ranks.stored().columns();
    let mut keys = vec![Vec::new(); rows.len()];
    for (i, (old, new)) in stored.iter().zip(ranks.shape().columns()).enumerate() {
        let one = shape(vec![new.clone()]);
        for (row, key) in rows.iter().zip(&mut keys) {
            let value = &row[i];
            if let RankOf::Stored = ranks.of(i) {
                key.extend(encode_dense(&one, &[vec![value.clone()]]).to_bytes(&one, 0));
                continue;
            }
            let rank = match (value, ranks.of(i)) {
                (KeyValue::Null, _) => ranks.null(i).unwrap(),
                (_, RankOf::Numbers { base, .. }) => {
                    let row = [vec![value.clone()]];
                    ranks.first(i) + (numbers_of(old.ty, &row, 0).unwrap()[0] - base)
                }
                (value, _) => {
                    ranks.find(i, &dense(old.ty, std::slice::from_ref(value)).bytes[0]).unwrap()
                }
            };
            key.extend(encode_dense(&one, &[vec![KeyValue::UInt(rank)]]).to_bytes(&one, 0));
        }
    }
    keys
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn ranked_keys_are_ordered_and_translated_stored_ones(
        (columns, rows) in prop::collection::vec(any_column(), 1..4)
            .prop_flat_map(|columns| { let rows = rows(&columns); (Just(columns), rows) }),
        ranked in prop::collection::vec(prop::bool::weighted(0.8), 4),
        slack in prop::sample::select(vec![0, 1, 1 << 40]),
    ) {
        let stored = shape(columns);
        let ranks = ranks_of(&stored, &rows, &ranked, slack);
        let keys = ranked_keys(&ranks, &rows);
        let old = encode_dense(&stored, &rows);
        for (i, a) in rows.iter().enumerate() {
            prop_assert_eq!(ranks.translate(&keys[i]).unwrap(), old.to_bytes(&stored, i));
            prop_assert_eq!(ranks.rank(&old.to_bytes(&stored, i)).unwrap(), Some(keys[i].clone()));
            if let Some(width) = ranks.shape().fixed_width() {
                prop_assert_eq!(keys[i].len(), width);
            }
            for (j, b) in rows.iter().enumerate() {
                prop_assert_eq!(keys[i].cmp(&keys[j]), compare(&stored, a, b));
                for n in 0..=a.len() {
                    let prefix = &keys[i][..prefix_len(ranks.shape(), &keys[i], n).unwrap()];
                    let leading = shape(stored.columns()[..n].to_vec());
                    let agree = compare(&leading, a, b).is_eq();
                    prop_assert_eq!(keys[j].starts_with(prefix), agree);
                }
            }
        }
    }

    #[test]
    fn numbers_give_the_keys_that_values_give(
        (column, rows) in any_column()
            .prop_flat_map(|column| { let rows = rows(std::slice::from_ref(&column)); (Just(column), rows) }),
        is_packed: bool,
    ) {
        let Some(values) = numbers_of(column.ty, &rows, 0) else { return Ok(()) };
        let present: Vec<bool> = rows.iter().map(|row| row[0] != KeyValue::Null).collect();
        let mut columns = vec![column];
        let mut rows = rows.clone();
        if !is_packed {
            let text = KeyType::Bytes { text: true };
            columns.push(super::laws::column(text, false, Nulls::Last));
            rows.iter_mut().for_each(|row| row.push(KeyValue::Null));
        }
        let shape = shape(columns);
        let column = Column { present: Some(&present), values: Values::Numbers(&values) };
        let nulls = Column { present: None, values: Values::None };
        let keys = encode(&shape, rows.len(), &[column, nulls][..shape.columns().len()]);
        prop_assert_eq!(keys.unwrap(), encode_dense(&shape, &rows));
    }

    #[test]
    fn keys_whose_values_have_ranks_are_told_apart(
        (columns, rows, others) in prop::collection::vec(any_column(), 1..3).prop_flat_map(|c| {
            let (rows, others) = (rows(&c), rows(&c));
            (Just(c), rows, others)
        }),
        ranked in prop::collection::vec(any::<bool>(), 3),
    ) {
        let stored = shape(columns);
        let ranks = ranks_of(&stored, &rows, &ranked, 0);
        let keys = encode_dense(&stored, &others);
        for i in 0..others.len() {
            let key = keys.to_bytes(&stored, i);
            if let Some(found) = ranks.rank(&key).unwrap() {
                prop_assert_eq!(ranks.translate(&found).unwrap(), key);
            }
        }
    }

    #[test]
    fn any_bytes_translate_or_are_an_error(
        key in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 3, 127, 255]), 0..8),
        descending: bool,
    ) {
        let text = KeyType::Bytes { text: true };
        let stored = shape(vec![
            column(text, descending, Nulls::First),
            column(KeyType::Int32, !descending, Nulls::Last),
            column(KeyType::Boolean, descending, Nulls::Last),
        ]);
        let mut values = KeyBytes::default();
        ["", "a\0", "b"].iter().for_each(|value| values.push(value.as_bytes()));
        let number = RankOf::Numbers { base: 1 << 31, span: 1 };
        let columns = vec![(RankOf::Values(values.into()), true), (number, false), (RankOf::Stored, true)];
        let ranks = Ranks::try_new(stored.clone(), columns).unwrap();
        match ranks.translate(&key) {
            // Columns as they are stored are copied, whatever they hold.
            Ok(key) => prop_assert!(prefix_len(&stored, &key, 3).is_ok_and(|len| len == key.len())),
            Err(e) => prop_assert_eq!(e.kind(), Kind::CorruptSource),
        }
    }
}

#[test]
fn ranks_take_as_few_bytes_as_they_can() {
    let bytes = |span, has_null| {
        let stored = shape(vec![column(KeyType::Int64, false, Nulls::Last)]);
        let of = RankOf::Numbers { base: 5, span };
        Ranks::try_new(stored, vec![(of, has_null)])
            .map(|ranks| ranks.shape().fixed_width().unwrap())
    };
    assert_eq!(bytes(0, false).unwrap(), 1);
    assert_eq!((bytes(255, false).unwrap(), bytes(255, true).unwrap()), (1, 2));
    assert_eq!(bytes(u64::MAX, false).unwrap(), 8);
    assert_eq!(bytes(u64::MAX, true).unwrap_err().kind(), Kind::Internal);
}

#[test]
fn ranks_that_do_not_fit_their_column_are_refused() {
    let stored = || shape(vec![column(KeyType::Int64, false, Nulls::Last)]);
    let values = RankOf::Values(KeyBytes::default().into());
    for columns in [vec![], vec![(values, false)]] {
        assert_eq!(Ranks::try_new(stored(), columns).unwrap_err().kind(), Kind::Internal);
    }
    let text = shape(vec![column(KeyType::Bytes { text: true }, false, Nulls::Last)]);
    let numbers = RankOf::Numbers { base: 0, span: 1 };
    assert_eq!(Ranks::try_new(text, vec![(numbers, false)]).unwrap_err().kind(), Kind::Internal);
    let one = shape(vec![column(KeyType::Rank { bytes: 1 }, false, Nulls::Last)]);
    let missing = Column { present: None, values: Values::None };
    assert_eq!(encode(&one, 1, &[missing]).unwrap_err().kind(), Kind::Internal);
}
