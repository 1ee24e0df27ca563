//! Coordinates of a row in, its place on the curve out.
//!
//! ```text
//! a   1 0 1 …    Z-order   1 1 0 1 1 0 …      bits by turns, the most significant first,
//! b   1 1 0 …                                 those of the first column before the others
//!                Hilbert   the same bits, turned level by level
//! ```
//!
//! # Invariants
//! The index has all bits of all coordinates: [`coordinates_at`] undoes it.
//!
//! # Cost
//! Z-order: masks for two columns, a table of 256 spread bytes for more. Hilbert: a look into a table
//! for every one to four levels, up to four columns; a step for every level beyond.
//!
//! # Not here
//! Where coordinates come from (`coordinate`).

use super::curve::{CURVE_COLUMNS_MAX, CurveKind};
use super::hilbert::{CellTurn, CurveWalk};
use super::shape::COORDINATE_BYTES;

/// Bytes of the longest index.
const INDEX_BYTES_MAX: usize = CURVE_COLUMNS_MAX * COORDINATE_BYTES;

/// By number of columns and byte: its bits, so many places apart.
static SPREAD: [[u64; 256]; CURVE_COLUMNS_MAX + 1] = spread_bytes();

const fn spread_bytes() -> [[u64; 256]; CURVE_COLUMNS_MAX + 1] {
    let mut spread = [[0; 256]; CURVE_COLUMNS_MAX + 1];
    let mut columns = 1;
    while columns <= CURVE_COLUMNS_MAX {
        let mut byte = 0;
        while byte < 256 {
            let mut bit = 0;
            while bit < 8 {
                if byte >> bit & 1 == 1 {
                    spread[columns][byte] |= 1 << (bit * columns);
                }
                bit += 1;
            }
            byte += 1;
        }
        columns += 1;
    }
    spread
}

/// The bits of two coordinates by turns.
#[inline(always)]
fn pair_cells(a: u64, b: u64) -> u128 {
    let half = |a: u64, b: u64| spread(a) << 1 | spread(b);
    u128::from(half(a >> 32, b >> 32)) << 64 | u128::from(half(a, b))
}

/// Calls `put` with each row and the index of its two coordinates on the Hilbert curve. Each look
/// waits for the one before it, so several rows are walked at a time.
#[inline(always)]
fn walk_pairs(walk: &CurveWalk, a: &[u64], b: &[u64], mut put: impl FnMut(usize, &[u8])) {
    const LANES: usize = 4;
    let rows = a.len().min(b.len());
    for first in (0..rows).step_by(LANES) {
        let lanes = LANES.min(rows - first);
        let mut cells = [[0; size_of::<u128>()]; LANES];
        for (lane, cells) in cells.iter_mut().enumerate().take(lanes) {
            *cells = pair_cells(a[first + lane], b[first + lane]).to_be_bytes();
        }
        let mut turns = [0; LANES];
        for byte in 0..size_of::<u128>() {
            for (cells, turn) in cells.iter_mut().zip(&mut turns) {
                (cells[byte], *turn) = walk.byte(*turn, cells[byte]);
            }
        }
        for (lane, index) in cells.iter().enumerate().take(lanes) {
            put(first + lane, index);
        }
    }
}

/// The low 32 bits, each two places apart.
#[inline(always)]
fn spread(bits: u64) -> u64 {
    let bits = bits & 0xFFFF_FFFF;
    let bits = (bits | bits << 16) & 0x0000_FFFF_0000_FFFF;
    let bits = (bits | bits << 8) & 0x00FF_00FF_00FF_00FF;
    let bits = (bits | bits << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    let bits = (bits | bits << 2) & 0x3333_3333_3333_3333;
    (bits | bits << 1) & 0x5555_5555_5555_5555
}

/// Calls `put` with each of `rows` rows and the bytes of its index. Each of `columns`, of which there
/// are two to eight, has a coordinate for every row.
pub(super) fn indexes(
    kind: CurveKind,
    columns: &[Vec<u64>],
    rows: usize,
    mut put: impl FnMut(usize, &[u8]),
) {
    if let [a, b] = columns {
        match (kind, CurveWalk::of(2)) {
            (CurveKind::Hilbert, Some(walk)) => walk_pairs(walk, a, b, put),
            _ => {
                for (row, (a, b)) in a.iter().zip(b).enumerate() {
                    put(row, &pair_cells(*a, *b).to_be_bytes());
                }
            }
        }
        return;
    }
    let count = columns.len();
    let walk = CurveWalk::of(count);
    let spread = &SPREAD[count.min(CURVE_COLUMNS_MAX)];
    let mut index = [0; INDEX_BYTES_MAX];
    let index = &mut index[..count * COORDINATE_BYTES];
    for row in 0..rows {
        let (mut at, mut turn) = (0, CellTurn::FIRST);
        for (byte, to) in index.chunks_exact_mut(count).enumerate() {
            let shift = 8 * (COORDINATE_BYTES - 1 - byte);
            let cells = columns.iter().fold(0, |cells, column| {
                cells << 1 | spread[usize::from((column[row] >> shift) as u8)]
            });
            let bits = match (kind, walk) {
                (CurveKind::ZOrder, _) => cells,
                (CurveKind::Hilbert, Some(walk)) => walk.eight_levels(&mut at, cells),
                (CurveKind::Hilbert, None) => levels(count, cells, |cell| turn.step(count, cell)),
            };
            to.copy_from_slice(&bits.to_be_bytes()[COORDINATE_BYTES - count..]);
        }
        put(row, index);
    }
}

/// The coordinates of `count` columns whose index has these bytes.
pub(super) fn coordinates_at(kind: CurveKind, count: usize, index: &[u8]) -> Vec<u64> {
    let mut coordinates = vec![0_u64; count];
    let mut turn = CellTurn::FIRST;
    for bytes in index.chunks_exact(count) {
        let bits = bytes.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        let cells = match kind {
            CurveKind::ZOrder => bits,
            CurveKind::Hilbert => levels(count, bits, |index| turn.back(count, index)),
        };
        for level in (0..8).rev() {
            for (i, coordinate) in coordinates.iter_mut().enumerate() {
                *coordinate = *coordinate << 1 | cells >> (level * count + count - 1 - i) & 1;
            }
        }
    }
    coordinates
}

/// The bits of eight levels of `count` columns, each level changed by `step`.
fn levels(count: usize, bits: u64, mut step: impl FnMut(u8) -> u8) -> u64 {
    (0..8).rev().fold(0, |changed, level| {
        let own = (bits >> (level * count)) as u8 & (u8::MAX >> (8 - count));
        changed << count | u64::from(step(own))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit by bit.
    fn slow(columns: &[u64]) -> Vec<u8> {
        let mut bits = Vec::new();
        for level in (0..64).rev() {
            bits.extend(columns.iter().map(|column| (column >> level & 1) as u8));
        }
        bits.chunks(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | bit)).collect()
    }

    fn index(kind: CurveKind, row: &[u64]) -> Vec<u8> {
        let columns: Vec<Vec<u64>> =
            row.iter().map(|value| vec![7, 9, 0, 1, u64::MAX, *value, 3]).collect();
        let mut found = Vec::new();
        indexes(kind, &columns, 7, |row, index| {
            if row == 5 {
                found = index.to_vec();
            }
        });
        found
    }

    fn any_row() -> impl Strategy<Value = Vec<u64>> {
        let value = prop_oneof![any::<u64>(), Just(u64::MAX), Just(0), 0_u64..9];
        prop::collection::vec(value, 2..9)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn z_order_takes_bits_by_turns(row in any_row()) {
            prop_assert_eq!(index(CurveKind::ZOrder, &row), slow(&row));
        }

        #[test]
        fn an_index_is_undone(row in any_row(), kind in prop::sample::select(&CurveKind::ALL[..])) {
            prop_assert_eq!(coordinates_at(kind, row.len(), &index(kind, &row)), row);
        }

        #[test]
        fn z_order_ascends_where_no_coordinate_descends(
            row in any_row(), more in prop::collection::vec(0_u64..100, 8),
        ) {
            let above: Vec<u64> =
                row.iter().zip(&more).map(|(value, more)| value.saturating_add(*more)).collect();
            prop_assert!(index(CurveKind::ZOrder, &row) <= index(CurveKind::ZOrder, &above));
        }
    }
}
