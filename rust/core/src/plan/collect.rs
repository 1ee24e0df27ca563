//! Which elements of several lists, or entries of several maps, those of one have.
//!
//! ```text
//! lists    [a, b]  null  [b, c]        all       [a, b, b, c]
//!                                      distinct  [a, b, c]
//! maps     {a: 1, b: 2}  {b: 3}        distinct  {a: 1, b: 3}
//! ```
//!
//! # Invariants
//! Merging neighbours first gives the same. Of equal elements the first has the place and the last
//! is taken, as in `dict.update` of Python.
//!
//! # Not here
//! Reading elements, and what makes them equal (the shells).

use std::collections::HashMap;

/// Of the elements of several values each one once: the value and the element that it is.
/// `identities` has something for each element of each value, equal for equal elements.
///
/// ```
/// use plait_core::plan::distinct_elements;
/// let values = [vec!["a", "b"], vec!["a"]];
/// assert_eq!(distinct_elements(&values), [(1, 0), (0, 1)]);
/// ```
#[must_use]
pub fn distinct_elements<I: AsRef<[u8]>>(identities: &[Vec<I>]) -> Vec<(usize, usize)> {
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let mut chosen = Vec::new();
    for (value, elements) in identities.iter().enumerate() {
        for (element, identity) in elements.iter().enumerate() {
            let place = *places.entry(identity.as_ref()).or_insert(chosen.len());
            match chosen.get_mut(place) {
                Some(chosen) => *chosen = (value, element),
                None => chosen.push((value, element)),
            }
        }
    }
    chosen
}
