use super::super::{Ask, OrderCheck, WindowRule, Windows};
use super::*;
use crate::key::{KeyColumn, KeyType, Nulls};
use proptest::prelude::*;

fn shape(name: &str) -> KeyShape {
    let column = KeyColumn {
        name: name.into(),
        ty: KeyType::UInt32,
        descending: false,
        nulls: Nulls::First,
    };
    KeyShape::try_new(vec![column]).unwrap()
}

fn packed(value: u32) -> u128 {
    1 << 120 | u128::from(value) << 88
}

/// Key, version, deletes, expired.
type Row = (u32, u32, bool, bool);

/// The oracle: sort, group, choose.
fn slow(sources: &[Vec<Row>], rule: &DropRule) -> (Vec<(u32, u64)>, Dropped) {
    let mut all: Vec<(Row, u32, u64)> = Vec::new();
    for (s, rows) in sources.iter().enumerate() {
        all.extend(rows.iter().zip(0..).map(|(row, i)| (*row, s as u32, i)));
    }
    all.sort_by_key(|(row, s, i)| (row.0, *s, *i));
    let (mut kept, mut dropped) = (Vec::new(), Dropped::default());
    for group in all.chunk_by(|a, b| a.0.0 == b.0.0) {
        let live: Vec<_> = group.iter().filter(|row| !row.0.3).collect();
        dropped.expired += (group.len() - live.len()) as u64;
        if rule.on_duplicate == OnDuplicate::KeepAll {
            kept.extend(live.iter().map(|row| (row.1, row.2)));
            continue;
        }
        let best = match (rule.on_duplicate, rule.versions.first()) {
            // `max_by_key` takes the last of equal ones.
            (OnDuplicate::KeepFirst, Some(_)) => live.iter().rev().max_by_key(|row| row.0.1),
            (OnDuplicate::KeepFirst, None) => live.first(),
            (_, Some(_)) => live.iter().max_by_key(|row| row.0.1),
            _ => live.last(),
        };
        let Some(best) = best else { continue };
        dropped.duplicate += live.len() as u64 - 1;
        match best.0.2 && !rule.keeps_tombstones {
            true => dropped.deleted += 1,
            false => kept.push((best.1, best.2)),
        }
    }
    (kept, dropped)
}

/// What stays, and what does not.
type Sifted = (Vec<(u32, u64)>, Dropped);

/// Source and row.
type At = (u32, u64);

/// Output row, rows, place of the newest.
type Group = (u64, Vec<At>, u32);

/// The oracle of rows that are combined: sort, group, forget what tombstones delete. With
/// `newest_first`, sources come from the newest to the oldest, and so do their rows.
fn combined(
    sources: &[Vec<Row>],
    keeps_tombstones: bool,
    newest_first: bool,
) -> (Vec<At>, Vec<Group>) {
    let mut all: Vec<(Row, At)> = Vec::new();
    for (s, rows) in sources.iter().enumerate() {
        all.extend(rows.iter().zip(0..).map(|(row, i)| (*row, (s as u32, i))));
    }
    all.sort_by_key(|(row, at)| (row.0, *at));
    let (mut kept, mut groups) = (Vec::new(), Vec::new());
    for group in all.chunk_by(|a, b| a.0.0 == b.0.0) {
        let mut live: Vec<_> = group.iter().filter(|(row, _)| !row.3).collect();
        if newest_first {
            live.reverse();
        }
        let tombstone = live.iter().rposition(|(row, _)| row.2);
        let behind = &live[tombstone.map_or(0, |at| at + 1)..];
        let mut leaves: Vec<At> = Vec::new();
        leaves.extend(tombstone.filter(|_| keeps_tombstones).map(|at| live[at].1));
        if let Some(last) = behind.last() {
            leaves.push(last.1);
        }
        if newest_first {
            leaves.reverse();
        }
        if behind.len() > 1 {
            let place = leaves.iter().position(|at| *at == behind[behind.len() - 1].1).unwrap();
            // The last of equal versions.
            let newest = behind.iter().enumerate().max_by_key(|(_, (row, _))| row.1).unwrap().0;
            let rows = behind.iter().map(|(_, at)| *at).collect();
            groups.push(((kept.len() + place) as u64, rows, newest as u32));
        }
        kept.extend(leaves);
    }
    (kept, groups)
}

fn fast(
    sources: &[Vec<Row>],
    rule: DropRule,
    cut: WindowRule,
    batch: usize,
    rows_max: u64,
) -> Result<(Sifted, Vec<Group>), Clash> {
    let mut groups: Vec<Group> = Vec::new();
    let rows_at_most = rows_max + u64::from(rule.keeps_tombstones && rows_max == 1);
    let every = cut.sample_every;
    let mut windows = Windows::new(shape("k"), sources.len(), cut, OrderCheck::Full);
    let has_versions = !rule.versions.is_empty();
    windows.drop_rows(rule);
    windows.set_rows_max(rows_max);
    let mut given = vec![0; sources.len()];
    let mut rows = Vec::new();
    loop {
        match windows.next().unwrap() {
            Ask::Keys(s) => {
                let of = &sources[s.index()];
                let some: Vec<Row> =
                    of.iter().skip(given[s.index()]).take(batch).copied().collect();
                given[s.index()] += some.len();
                if some.is_empty() {
                    windows.end(s);
                    continue;
                }
                let keys = some.iter().map(|row| packed(row.0)).collect();
                windows.supply(s, Keys::Packed(keys), false).unwrap();
                let versions = some.iter().map(|row| packed(row.1)).collect();
                windows.mark(
                    s,
                    Marks {
                        expired: some.iter().map(|row| row.3).collect(),
                        deletes: some.iter().map(|row| row.2).collect(),
                        versions: has_versions
                            .then_some(Keys::Packed(versions))
                            .into_iter()
                            .collect(),
                    },
                );
            }
            Ask::RowGroupStart(s) => windows.enter(s),
            Ask::Clash(clash) => return Err(clash),
            Ask::Window(window) => {
                assert!(window.steps.rows() <= rows_at_most);
                let first = rows.len() as u64;
                for group in window.groups.iter() {
                    let of = group.rows.iter().map(|at| (at.source().0, at.row())).collect();
                    groups.push((first + group.row, of, group.newest[0]));
                }
                let mut at: Vec<u64> = vec![0; sources.len()];
                window.steps.taken().for_each(|t| at[t.source.index()] = t.start);
                let mut words = window.steps.words();
                while let Some((step, used)) = crate::packed_runs::PackedRun::first(words) {
                    let row = &mut at[step.source as usize];
                    if !step.is_gap {
                        rows.extend((*row..*row + u64::from(step.len)).map(|r| (step.source, r)));
                    }
                    *row += u64::from(step.len);
                    words = &words[used..];
                }
                for (row, key) in &window.samples {
                    let (s, i) = rows[*row as usize];
                    let expected = packed(sources[s as usize][i as usize].0);
                    assert_eq!(row % every, 0);
                    assert_eq!(key, &expected.to_be_bytes()[..5]);
                }
            }
            Ask::Done => return Ok(((rows, windows.dropped()), groups)),
        }
    }
}

fn sources() -> impl Strategy<Value = Vec<Vec<Row>>> {
    let row = (0u32..12, 0u32..3, any::<bool>(), prop::bool::weighted(0.2));
    let source = prop::collection::vec(row, 0..12).prop_map(|mut rows| {
        rows.sort_by_key(|row| row.0);
        rows
    });
    prop::collection::vec(source, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn one_row_of_every_key_stays_wherever_windows_end(
        sources in sources(), policy in 0usize..3, versioned in any::<bool>(),
        keeps_tombstones in any::<bool>(), batch in 1usize..5, rows_max in 1u64..6,
        deletes in any::<bool>(),
    ) {
        let on_duplicate =
            [OnDuplicate::KeepAll, OnDuplicate::KeepFirst, OnDuplicate::KeepLast][policy];
        let mut sources = sources;
        if !deletes || on_duplicate == OnDuplicate::KeepAll {
            sources.iter_mut().flatten().for_each(|row| row.2 = false);
        }
        let versions = (versioned && on_duplicate != OnDuplicate::KeepAll).then(|| shape("v"));
        let versions = versions.into_iter().collect();
        let rule = DropRule { on_duplicate, versions, keeps_tombstones, ..DropRule::default() };
        let rows = sources.iter().map(|rows| rows.len() as u64).sum();
        let cut = WindowRule { rows, sample_every: 2, ..WindowRule::default() };
        let (expected, dropped) = slow(&sources, &rule);
        let ((found, counted), _) = fast(&sources, rule, cut, batch, rows_max).unwrap();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(counted, dropped);
        prop_assert_eq!(counted.rows() + found.len() as u64, rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn rows_of_one_key_leave_as_one_with_all_rows_that_it_is(
        sources in sources(), keeps_tombstones in any::<bool>(), newest_first in any::<bool>(),
        batch in 1usize..5, rows_max in 1u64..6, groups_bytes in prop_oneof![Just(0), 1usize..200],
    ) {
        let rule = DropRule {
            on_duplicate: OnDuplicate::Update,
            versions: vec![shape("v")],
            keeps_tombstones,
            newest_first,
            group_rows_max: 0,
        };
        let rows = sources.iter().map(|rows| rows.len() as u64).sum();
        let cut = WindowRule { rows, sample_every: 2, groups_bytes, ..WindowRule::default() };
        let (expected, groups) = combined(&sources, keeps_tombstones, newest_first);
        let ((found, counted), found_groups) =
            fast(&sources, rule, cut, batch, rows_max).unwrap();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(found_groups, groups);
        prop_assert_eq!(counted.rows() + found.len() as u64, rows);
    }
}

#[test]
fn two_rows_of_one_key_are_told_where_there_must_not_be_two() {
    let row = |key| (key, 0, false, false);
    let sources = [vec![row(1), row(4)], vec![row(2), row(4)]];
    let rule = || DropRule { on_duplicate: OnDuplicate::Error, ..DropRule::default() };
    let cut = || WindowRule { rows: 4, ..WindowRule::default() };
    let clash = fast(&sources, rule(), cut(), 2, 9).unwrap_err();
    assert_eq!((clash.before, clash.after), ((SourceId(0), 1), (SourceId(1), 1)));
    let fine = [vec![row(1)], vec![row(2)]];
    assert_eq!(fast(&fine, rule(), cut(), 2, 9).unwrap().0.0, [(0, 0), (1, 0)]);
}
