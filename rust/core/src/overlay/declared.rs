//! The paths of all layers as one tree: who names what, in which order.
//!
//! # Cost
//! Linear in the names of all paths.
//!
//! # Not here
//! Whether there is anything at a path (`resolve`).

use std::collections::HashMap;

use super::path::FieldPath;

/// One name in the tree of declared paths.
#[derive(Default)]
pub(super) struct Declared {
    pub(super) name: String,
    /// The strongest layer that declares exactly this path.
    pub(super) owner: Option<usize>,
    /// All layers that name the struct here or fields of it, in the order of their paths.
    pub(super) named: Vec<(usize, Named)>,
    pub(super) below: Vec<Self>,
    /// Places in `below`, by name.
    places: HashMap<String, usize>,
}

/// What a path names of a struct.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// All of it.
    Whole,
    /// A field, by its place in [`Declared::below`].
    Field(usize),
}

impl Declared {
    /// The tree of the paths of all layers, weakest first.
    pub(super) fn tree(owned: &[Vec<FieldPath>]) -> Self {
        let mut root = Self::default();
        for (layer, paths) in owned.iter().enumerate() {
            for path in paths {
                let mut at = &mut root;
                for name in path.names() {
                    at = at.enter(name, layer);
                }
                at.owner = at.owner.max(Some(layer));
                at.name(layer, Named::Whole);
            }
        }
        root
    }

    /// Notes that a path of `layer` names something here.
    fn name(&mut self, layer: usize, named: Named) {
        if self.named.last() != Some(&(layer, named)) {
            self.named.push((layer, named));
        }
    }

    /// Layers that declare exactly this path.
    pub(super) fn owners(&self) -> impl Iterator<Item = usize> {
        self.named.iter().filter(|(_, named)| *named == Named::Whole).map(|(layer, _)| *layer)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.places.get(name).and_then(|&place| self.below.get(place))
    }

    /// The name below, which a path of `layer` has.
    fn enter(&mut self, name: &str, layer: usize) -> &mut Self {
        let place = *self.places.entry(name.to_owned()).or_insert(self.below.len());
        if place == self.below.len() {
            self.below.push(Self { name: name.to_owned(), ..Self::default() });
        }
        self.name(layer, Named::Field(place));
        &mut self.below[place]
    }

    /// Adds the layers that supply something here or below, under `above`, to `found`.
    pub(super) fn suppliers(&self, above: Option<usize>, found: &mut Vec<usize>) {
        let owner = above.max(self.owner);
        if let Some(owner) = owner.filter(|owner| !found.contains(owner)) {
            found.push(owner);
        }
        self.below.iter().for_each(|below| below.suppliers(owner, found));
    }
}

/// Layers that own a path or something above it, weakest first.
pub(super) fn owners_of(above: &[usize], declared: Option<&Declared>) -> Vec<usize> {
    let mut owners = above.to_vec();
    owners.extend(declared.into_iter().flat_map(Declared::owners));
    owners.sort_unstable();
    owners.dedup();
    owners
}
