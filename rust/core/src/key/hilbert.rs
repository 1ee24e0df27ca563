//! The Hilbert curve as a walk: from the bits of a cell, level by level, to those of its index.
//!
//! ```text
//! level    bits of a and b, the most significant first      index
//!   0      1 0        ─▶ turned as the levels before say ─▶ 1 1
//!   1      0 1        ─▶ …                               ─▶ 0 1
//! ```
//!
//! The steps are those of John Skilling, "Programming the Hilbert curve" (2004), which go through all
//! levels of all axes; here what they leave behind is a [`CellTurn`], one for each orientation of a cell.
//!
//! # Invariants
//! [`CellTurn::back`] undoes [`CellTurn::step`]; both leave the same turn.
//!
//! # Cost
//! A step is linear in the axes. [`CurveWalk`] holds all steps of 2 to 4 axes in a table, several levels
//! each; it is made once, when it is first needed.
//!
//! # Not here
//! Where the bits come from (`curve_index`).

use std::collections::HashMap;
use std::sync::LazyLock;

use super::curve::CURVE_COLUMNS_MAX;

/// How a cell lies: which axis stands for which, which ones are mirrored, and whether the steps
/// before were an odd number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CellTurn {
    axes: [u8; CURVE_COLUMNS_MAX],
    mirrored: u8,
    is_odd: bool,
}

impl CellTurn {
    /// That of the whole space.
    pub(super) const FIRST: Self =
        Self { axes: [0, 1, 2, 3, 4, 5, 6, 7], mirrored: 0, is_odd: false };

    /// The bits of the index of a level whose cell has the bits `cell`, one an axis, the first one
    /// the highest of `count`; the turn is that of the next level from now on.
    #[inline]
    pub(super) fn step(&mut self, count: usize, cell: u8) -> u8 {
        let mut turned = 0;
        for (at, axis) in self.axes.iter().enumerate().take(count) {
            let bit = cell >> (count - 1 - usize::from(*axis)) & 1 ^ self.mirrored >> at & 1;
            turned |= bit << at;
        }
        // Gray code: each bit counts those before it.
        let (mut index, mut before) = (0, 0);
        for at in 0..count {
            before ^= turned >> at & 1;
            index = index << 1 | before ^ u8::from(self.is_odd);
        }
        self.follow(count, turned, before);
        index
    }

    /// The bits of the cell whose index has the bits `index` at a level.
    pub(super) fn back(&mut self, count: usize, index: u8) -> u8 {
        let (mut turned, mut before, mut cell) = (0, 0, 0);
        for at in 0..count {
            let gray = index >> (count - 1 - at) & 1 ^ u8::from(self.is_odd);
            turned |= (gray ^ before) << at;
            before = gray;
        }
        for (at, axis) in self.axes.iter().enumerate().take(count) {
            let bit = turned >> at & 1 ^ self.mirrored >> at & 1;
            cell |= bit << (count - 1 - usize::from(*axis));
        }
        self.follow(count, turned, before);
        cell
    }

    /// Turns to the cell in which bit `i` of axis `i` is that of `turned`.
    #[inline]
    fn follow(&mut self, count: usize, turned: u8, last: u8) {
        for at in 0..count {
            if turned >> at & 1 == 1 {
                self.mirrored ^= 1;
            } else {
                self.axes.swap(0, at);
                let differ = (self.mirrored ^ self.mirrored >> at) & 1;
                self.mirrored ^= differ | differ << at;
                // Swapped with itself nothing differs.
            }
        }
        self.is_odd ^= last == 1;
    }
}

/// All steps of a number of axes, several levels at a time.
pub(super) struct CurveWalk {
    levels: usize,
    bits: usize,
    /// By turn, then by the bits of the levels: the bits of the index, and where the next turn begins.
    steps: Vec<(u8, u16)>,
}

/// Those of two, three and four axes.
static WALKS: [LazyLock<CurveWalk>; 3] = [
    LazyLock::new(|| CurveWalk::new(2, 4)),
    LazyLock::new(|| CurveWalk::new(3, 2)),
    LazyLock::new(|| CurveWalk::new(4, 1)),
];

impl CurveWalk {
    /// The table for `count` axes, if there is one: turns of more axes are too many.
    pub(super) fn of(count: usize) -> Option<&'static Self> {
        WALKS.get(count.checked_sub(2)?).map(|walk| &**walk)
    }

    fn new(count: usize, levels: usize) -> Self {
        let bits = count * levels;
        let (mut turns, mut places) =
            (vec![CellTurn::FIRST], HashMap::from([(CellTurn::FIRST, 0)]));
        let mut steps = Vec::new();
        let mut at = 0;
        while let Some(turn) = turns.get(at).copied() {
            for cells in 0..1_usize << bits {
                let (mut next, mut index) = (turn, 0);
                for level in (0..levels).rev() {
                    let cell = cells >> (level * count) & ((1 << count) - 1);
                    index = index << count | usize::from(next.step(count, cell as u8));
                }
                let place = *places.entry(next).or_insert_with(|| {
                    turns.push(next);
                    turns.len() - 1
                });
                steps.push((index as u8, place as u16));
            }
            at += 1;
        }
        Self { levels, bits, steps }
    }

    /// The index bits of the four levels of two axes in `cells`, from turn `turn` on, and the next one.
    #[inline(always)]
    pub(super) fn byte(&self, turn: u16, cells: u8) -> (u8, u16) {
        debug_assert!(self.bits == 8, "a byte has the levels of one look");
        self.steps[usize::from(turn) << 8 | usize::from(cells)]
    }

    /// The index bits of the eight levels in the low bits of `cells`, from turn `turn` on.
    #[inline(always)]
    pub(super) fn eight_levels(&self, turn: &mut u16, cells: u64) -> u64 {
        let mut index = 0;
        let mut shift = 8 / self.levels * self.bits;
        while shift > 0 {
            shift -= self.bits;
            let own = (cells >> shift) as usize & ((1 << self.bits) - 1);
            let (bits, next) = self.steps[usize::from(*turn) << self.bits | own];
            index = index << self.bits | u64::from(bits);
            *turn = next;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Skilling's transform as he wrote it, of axes of `bits` bits.
    fn skilling(axes: &mut [u64], bits: u32) {
        let count = axes.len();
        let most = 1 << (bits - 1);
        let mut q = most;
        while q > 1 {
            let p = q - 1;
            for i in 0..count {
                if axes[i] & q != 0 {
                    axes[0] ^= p;
                } else {
                    let t = (axes[0] ^ axes[i]) & p;
                    axes[0] ^= t;
                    axes[i] ^= t;
                }
            }
            q >>= 1;
        }
        for i in 1..count {
            axes[i] ^= axes[i - 1];
        }
        let (mut t, mut q) = (0, most);
        while q > 1 {
            if axes[count - 1] & q != 0 {
                t ^= q - 1;
            }
            q >>= 1;
        }
        axes.iter_mut().for_each(|axis| *axis ^= t);
    }

    /// The bits of all axes at a level, the first one the highest.
    fn level(axes: &[u64], level: u32) -> u8 {
        axes.iter().fold(0, |bits, axis| bits << 1 | (axis >> level & 1) as u8)
    }

    proptest! {
        #[test]
        fn steps_are_those_of_skilling(
            axes in prop::collection::vec(any::<u64>(), 2..9), bits in 2_u32..65,
        ) {
            let axes: Vec<u64> = axes.into_iter().map(|axis| axis >> (64 - bits)).collect();
            let mut expected = axes.clone();
            skilling(&mut expected, bits);
            let (mut forth, mut back) = (CellTurn::FIRST, CellTurn::FIRST);
            for at in (0..bits).rev() {
                let index = forth.step(axes.len(), level(&axes, at));
                prop_assert_eq!(index, level(&expected, at));
                prop_assert_eq!(back.back(axes.len(), index), level(&axes, at));
                prop_assert_eq!(forth, back);
            }
        }

        #[test]
        fn tables_hold_the_steps(count in 2_usize..5, cells in any::<u64>()) {
            let cells = cells & ((1 << (8 * count)) - 1);
            let (mut turn, mut expected, mut index) = (0, CellTurn::FIRST, 0);
            for at in (0..8).rev() {
                let cell = (cells >> (at * count)) as u8 & ((1 << count) - 1);
                index = index << count | u64::from(expected.step(count, cell));
            }
            prop_assert_eq!(CurveWalk::of(count).unwrap().eight_levels(&mut turn, cells), index);
        }
    }

    #[test]
    fn cells_that_follow_each_other_are_neighbours() {
        for (count, bits) in [(2_usize, 5_u32), (3, 3), (4, 2), (5, 2)] {
            let cells = 1_u64 << (count as u32 * bits);
            let at = |index: u64| {
                let (mut turn, mut axes) = (CellTurn::FIRST, vec![0_u64; count]);
                for level in (0..bits).rev() {
                    let own = (index >> (level * count as u32)) as u8 & ((1 << count) - 1);
                    let cell = turn.back(count, own);
                    for (i, axis) in axes.iter_mut().enumerate() {
                        *axis = *axis << 1 | u64::from(cell >> (count - 1 - i) & 1);
                    }
                }
                axes
            };
            let path: Vec<Vec<u64>> = (0..cells).map(at).collect();
            for pair in path.windows(2) {
                let distance = |(a, b): (&u64, &u64)| a.abs_diff(*b);
                let far: u64 = pair[0].iter().zip(&pair[1]).map(distance).sum();
                assert_eq!(far, 1, "{count} axes: {pair:?}");
            }
            assert_eq!(path.iter().collect::<HashSet<_>>().len() as u64, cells);
        }
    }

    #[test]
    fn tables_are_small() {
        let bytes = |count| CurveWalk::of(count).unwrap().steps.len() * size_of::<(u8, u16)>();
        assert!((2..5).all(|count| bytes(count) <= 1 << 15), "{:?}", [2, 3, 4].map(bytes));
        assert!(CurveWalk::of(5).is_none() && CurveWalk::of(1).is_none());
    }
}
