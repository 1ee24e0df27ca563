//! Keys that a footer holds: `plait.key_range` and `plait.key_index`.
//!
//! # Invariants
//! Entries are hints. What does not parse, is of another version or contradicts itself counts as
//! absent; what parses and is wrong is found when the plan is executed.
//!
//! # Not here
//! Writing them (`sink`); their layout (`docs/formats/footer.md`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use plait_core::key::{SortOrder, decode, prefix_len};
use serde::Deserialize;

use super::key_samples::KeySamples;
use crate::keys::KeyLeaves;
use crate::order::claims;
use crate::schema::{LeafAdapter, key_type};
use crate::sink::KEYS_VERSION;
use crate::source::Source;

#[derive(Deserialize)]
struct KeyRangeEntry {
    version: u32,
    min: String,
    max: String,
}

#[derive(Deserialize)]
struct KeyIndex {
    version: u32,
    rows: Vec<u64>,
    keys: Vec<String>,
}

/// The text of an entry of the footer.
pub(crate) fn entry<'a>(source: &'a Source, name: &str) -> Option<&'a str> {
    let entries = source.file().key_value_metadata();
    let found = entries.into_iter().flatten().find(|entry| entry.key == name);
    found.and_then(|entry| entry.value.as_deref())
}

/// How many merges lie behind the file.
pub(crate) fn merge_level(source: &Source) -> u64 {
    entry(source, "plait.merge_level").and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Keys of the source's rows in `order`, as far as its footer has them: the first and the last are
/// among them.
pub(super) fn stored_keys(
    source: &Source,
    order: &SortOrder,
    keys: &KeyLeaves,
) -> Option<KeySamples> {
    if source.rows() == 0 || order.is_empty() || !is_same_key(source, order, keys) {
        return None;
    }
    let range: KeyRangeEntry = serde_json::from_str(entry(source, "plait.key_range")?).ok()?;
    if range.version != KEYS_VERSION {
        return None;
    }
    let key = |text: &str| cut_key(keys, text);
    let (first, last) = (key(&range.min)?, key(&range.max)?);
    let mut samples = vec![(0, first)];
    if let Some(index) = entry(source, "plait.key_index") {
        let index: KeyIndex = serde_json::from_str(index).ok()?;
        if index.version != KEYS_VERSION || index.rows.len() != index.keys.len() {
            return None;
        }
        for (row, text) in index.rows.iter().zip(&index.keys) {
            let key = key(text)?;
            match samples.last() {
                Some((before, least)) if before == row && *least == key => {}
                Some((before, least)) if before < row && *least <= key => samples.push((*row, key)),
                _ => return None,
            }
        }
    }
    let last_row = source.rows() - 1;
    match samples.last() {
        Some((row, key)) if *row == last_row && *key == last => {}
        Some((row, key)) if *row < last_row && *key <= last => samples.push((last_row, last)),
        _ => return None,
    }
    Some(KeySamples::of(&samples))
}

/// Whether the footer tells keys of the rows in `order`.
pub(crate) fn tells_keys(source: &Source, order: &SortOrder, keys: &KeyLeaves) -> bool {
    stored_keys(source, order, keys).is_some()
}

/// Whether the footer's keys are keys of the merge: the same columns of the same types, perhaps
/// with more behind them.
fn is_same_key(source: &Source, order: &SortOrder, keys: &KeyLeaves) -> bool {
    claims(source, order, keys)
        && keys.leaves.iter().zip(keys.shape.columns()).all(|(leaf, column)| {
            let Ok(LeafAdapter::Same { leaf, .. }) = leaf.adapter(source.id) else { return false };
            key_type(&source.leaf(*leaf)).is_ok_and(|ty| ty == column.ty)
        })
}

/// The key in `text`, cut to the columns of the merge.
fn cut_key(keys: &KeyLeaves, text: &str) -> Option<Vec<u8>> {
    let mut key = BASE64.decode(text).ok()?;
    let len = prefix_len(&keys.shape, &key, keys.shape.parts()).ok()?;
    key.truncate(len);
    decode(&keys.shape, &key).ok()?;
    Some(key)
}
