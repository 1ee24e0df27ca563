//! The memory account: how many bytes of large buffers a call holds, and held at the most.
//!
//! # Invariants
//! Every large buffer holds a [`Charge`] for as long as it lives, so `peak_bytes` is what the
//! engine held at its worst.
//!
//! # Cost
//! One atomic addition per page or batch.
//!
//! # Not here
//! Sizes of buffers (`budget`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;

/// The memory account of one call; clones are the same account.
#[derive(Clone, Debug)]
pub(crate) struct Account(Arc<Balance>);

#[derive(Debug)]
struct Balance {
    /// The account that this is a part of.
    whole: Option<Account>,
    limit_bytes: usize,
    held_bytes: AtomicI64,
    peak_bytes: AtomicI64,
}

impl Account {
    /// An account without charges.
    #[must_use]
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self::build(limit_bytes, None)
    }

    /// An account whose charges are charged here, too.
    #[must_use]
    pub(super) fn part(&self, limit_bytes: usize) -> Self {
        Self::build(limit_bytes, Some(self.clone()))
    }

    fn build(limit_bytes: usize, whole: Option<Self>) -> Self {
        let (held_bytes, peak_bytes) = (AtomicI64::new(0), AtomicI64::new(0));
        Self(Arc::new(Balance { whole, limit_bytes, held_bytes, peak_bytes }))
    }

    fn add(&self, change: i64) {
        let held = self.0.held_bytes.fetch_add(change, Ordering::Relaxed) + change;
        if change > 0 {
            self.0.peak_bytes.fetch_max(held, Ordering::Relaxed);
        }
        if let Some(whole) = &self.0.whole {
            whole.add(change);
        }
    }

    /// The memory limit in bytes. Charges may exceed it; the report says so then.
    #[must_use]
    pub(crate) fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }

    /// Accounts `bytes` until the returned charge is dropped.
    #[must_use]
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        let mut charge = Charge { account: self.clone(), bytes: 0 };
        charge.set(bytes);
        charge
    }

    /// `bytes`, accounted for until their last slice is dropped.
    #[must_use]
    pub(crate) fn hold(&self, bytes: Bytes) -> Bytes {
        let charge = self.charge(bytes.len());
        Bytes::from_owner(AccountedBytes { bytes, _charge: charge })
    }

    /// Bytes accounted at this moment.
    #[must_use]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.0.held_bytes.load(Ordering::Relaxed).max(0).unsigned_abs()
    }

    /// The most bytes that were ever accounted at once.
    #[must_use]
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Relaxed).max(0).unsigned_abs()
    }
}

/// Bytes accounted against an `Account` while this value lives.
pub struct Charge {
    account: Account,
    bytes: usize,
}

impl Charge {
    /// Changes the amount, for buffers that grow or shrink.
    pub(crate) fn set(&mut self, bytes: usize) {
        let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let change = signed(bytes) - signed(self.bytes);
        self.bytes = bytes;
        if change != 0 {
            self.account.add(change);
        }
    }

    /// The amount.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

struct AccountedBytes {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for AccountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_held_until_the_charge_is_dropped() {
        let account = Account::new(512 << 20);
        let page = account.charge(1 << 20);
        assert_eq!(account.held_bytes(), 1 << 20);
        drop(page);
        assert_eq!((account.held_bytes(), account.peak_bytes()), (0, 1 << 20));
    }

    #[test]
    fn charges_of_parts_add_up() {
        let account = Account::new(512 << 20);
        let (a, b) = (account.part(1 << 20), account.part(2 << 20));
        let (of_a, mut of_b) = (a.charge(1 << 20), b.charge(2 << 20));
        assert_eq!(
            (a.held_bytes(), b.held_bytes(), account.held_bytes()),
            (1 << 20, 2 << 20, 3 << 20)
        );
        of_b.set(1 << 20);
        drop(of_a);
        assert_eq!((a.held_bytes(), b.held_bytes(), account.held_bytes()), (0, 1 << 20, 1 << 20));
        assert_eq!((account.peak_bytes(), b.peak_bytes()), (3 << 20, 2 << 20));
        assert_eq!((account.limit_bytes(), b.limit_bytes()), (512 << 20, 2 << 20));
    }
}
