//! Does the body of a page hold what its header is about to say?
//!
//! ```text
//! repetition levels │ definition levels │ values: ids of a dictionary, or plain
//! runs counted        runs counted        runs counted, or lengths walked
//! ```
//!
//! # Invariants
//! A body that passes is decoded to as many levels and values as counted, with no byte left over.
//!
//! # Cost
//! A few nanoseconds a run of levels or ids, about one a byte array; nothing for other plain
//! values.
//!
//! # Not here
//! Pages of sources (`page`); headers and footers (`check`).

use parquet::basic::{Encoding, Type as Physical};
use parquet::schema::types::ColumnDescriptor;
use plait_core::{Error, Kind, Result};

use super::packed::About;
use crate::block::Layout;
use crate::page::hybrid::width_of;
use crate::page::hybrid_reader::count_values;

/// Compares the body of a page with what is known of it. `dictionary_len` is the number of values
/// that ids may stand for.
///
/// # Errors
/// [`Kind::Internal`] with the column.
pub(super) fn check_body(
    descr: &ColumnDescriptor,
    body: &[u8],
    about: &About,
    is_v2: bool,
    dictionary_len: usize,
) -> Result<()> {
    let wrong = |what: &str, got: String| {
        Error::new(Kind::Internal, what)
            .with_column(descr.path().string())
            .with_got(got)
            .with_hint("nothing was published; please report this")
    };
    let counted = |runs: &[u8], width: u32, max: usize| {
        count_values(runs, width, max).map_err(|e| wrong("page does not decode", e.to_string()))
    };
    let facts = &about.facts;
    let values_len = facts.levels.checked_sub(facts.nulls).ok_or_else(|| {
        wrong("page has more nulls than levels", format!("{} of {}", facts.nulls, facts.levels))
    })?;
    let sections = body.split_at_checked(about.rep_len).and_then(|(rep, rest)| {
        let (def, values) = rest.split_at_checked(about.def_len)?;
        Some((rep, def, values))
    });
    let Some((rep, def, values)) = sections else {
        return Err(wrong("page is shorter than its levels", format!("{} bytes", body.len())));
    };
    for (section, max) in [(rep, descr.max_rep_level()), (def, descr.max_def_level())] {
        if max == 0 {
            continue;
        }
        // Before version 2, the length comes in front.
        let runs = if is_v2 { Some(section) } else { section.get(4..) };
        let width = width_of(u32::from(max.unsigned_abs()));
        let count = match runs {
            Some(runs) => counted(runs, width, facts.levels)?,
            None => usize::MAX,
        };
        if count != facts.levels {
            let got = format!("{count} instead of {}", facts.levels);
            return Err(wrong("page has other levels than it counts", got));
        }
    }
    let got = match about.encoding {
        Encoding::RLE_DICTIONARY => {
            let width = width_of(u32::try_from(dictionary_len.saturating_sub(1)).unwrap_or(0));
            match values.split_first() {
                Some((first, runs)) if u32::from(*first) == width => {
                    counted(runs, width, values_len)?
                }
                _ => usize::MAX,
            }
        }
        // The parquet crate has encoded them.
        encoding if encoding != Encoding::PLAIN => values_len,
        _ if descr.physical_type() == Physical::BOOLEAN => {
            if values.len() == values_len.div_ceil(8) { values_len } else { usize::MAX }
        }
        _ => match Layout::of(descr) {
            // Of values without bytes there are as many as anybody says.
            Layout::Fixed(0) if values.is_empty() => values_len,
            Layout::Fixed(width) if width > 0 && values.len() % width == 0 => values.len() / width,
            Layout::Fixed(_) => usize::MAX,
            Layout::Prefixed => count_prefixed(values),
        },
    };
    match got == values_len {
        true => Ok(()),
        false => Err(wrong(
            "page has other values than it counts",
            format!("{} bytes of {} for {values_len} values", values.len(), about.encoding),
        )),
    }
}

/// How many values with their length in front `bytes` are; none fit that they are not.
fn count_prefixed(bytes: &[u8]) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        match Layout::Prefixed.len_at(bytes, at) {
            Some(len) => at += len,
            None => return usize::MAX,
        }
        count += 1;
    }
    if at == bytes.len() { count } else { usize::MAX }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;
    use crate::encode::facts::Facts;
    use crate::page::hybrid::encode;

    fn about(rep_len: usize, def_len: usize, encoding: Encoding, counts: (usize, usize)) -> About {
        let (levels, nulls) = counts;
        let facts = Facts {
            rows: levels,
            levels,
            nulls,
            nans: None,
            bounds: None,
            is_exact: true,
            bytes: None,
            rep: None,
            def: None,
        };
        About { rep_len, def_len, encoding, facts }
    }

    #[test]
    fn bodies_hold_as_many_levels_and_values_as_they_count() {
        let schema = "message m { optional binary s; required int64 k; required boolean b; }";
        let schema = SchemaDescriptor::new(Arc::new(parse_message_type(schema).unwrap()));
        let [s, k, b] = [0, 1, 2].map(|leaf| schema.column(leaf));
        // Nine levels, three of them nulls.
        let mut def = Vec::new();
        encode(&[1_u8, 1, 0, 1, 0, 1, 1, 0, 1], 1, &mut def);
        let def_len = def.len();
        let plain: Vec<u8> = (0..6).flat_map(|_| [2, 0, 0, 0, b'a', b'b']).collect();
        let mut ids = vec![2];
        encode(&[0_u32, 1, 2, 1, 0, 2], 2, &mut ids);
        let is_right = |descr: &ColumnDescriptor, body: &[u8], about: &About| {
            check_body(descr, body, about, true, 3).map_err(|e| {
                assert!(e.kind() == Kind::Internal && e.column().is_some());
            })
        };
        let (ids_of, plain_of) = (Encoding::RLE_DICTIONARY, Encoding::PLAIN);
        let text = [def.clone(), plain.clone()].concat();
        assert_eq!(is_right(&s, &text, &about(0, def_len, plain_of, (9, 3))), Ok(()));
        for (levels, nulls) in [(9, 2), (9, 4), (17, 11), (9, 10)] {
            let about = about(0, def_len, plain_of, (levels, nulls));
            assert!(is_right(&s, &text, &about).is_err(), "{levels} levels, {nulls} nulls");
        }
        let cut = &text[..text.len() - 1];
        assert!(is_right(&s, cut, &about(0, def_len, plain_of, (9, 3))).is_err());
        let coded = [def.clone(), ids.clone()].concat();
        assert_eq!(is_right(&s, &coded, &about(0, def_len, ids_of, (9, 3))), Ok(()));
        // What a page of ids became that was filled with values: the width, and nothing behind it.
        let empty = [def, vec![2]].concat();
        assert!(is_right(&s, &empty, &about(0, def_len, ids_of, (9, 3))).is_err());
        assert!(is_right(&s, &coded, &about(0, def_len + 1, ids_of, (9, 3))).is_err());
        assert_eq!(is_right(&k, &[0; 40], &about(0, 0, plain_of, (5, 0))), Ok(()));
        assert!(is_right(&k, &[0; 41], &about(0, 0, plain_of, (5, 0))).is_err());
        assert!(is_right(&k, &[0; 48], &about(0, 0, plain_of, (5, 0))).is_err());
        assert_eq!(is_right(&b, &[0; 2], &about(0, 0, plain_of, (9, 0))), Ok(()));
        assert!(is_right(&b, &[0; 2], &about(0, 0, plain_of, (8, 0))).is_err());
    }
}
