//! Parts of uploads: copied, sent, filled up; what small outputs hold.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::sync::Mutex;

use bytes::Bytes;
use url::Url;

use super::*;
use crate::page::testing::Numbers;
use crate::store::root::tests::{Twins, twins};
use crate::store::{Location, Stores};

/// An object whose bytes count up, and the ranges of it that were read.
struct Counting(u64, Mutex<Vec<Range<u64>>>);

impl Counting {
    fn bytes(range: Range<u64>) -> Vec<u8> {
        range.map(|at| (at % 251) as u8).collect()
    }
}

impl RangeReader for Counting {
    fn path(&self) -> &str {
        "s3://b/k"
    }

    fn len(&self) -> u64 {
        self.0
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.1.lock().unwrap().push(range.clone());
        Ok(Self::bytes(range).into())
    }

    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }

    fn is_local(&self) -> bool {
        false
    }

    fn object(&self) -> Option<ObjectVersion> {
        Some(ObjectVersion { url: Url::parse(self.path()).unwrap(), tag: "t".to_owned() })
    }
}

/// Parts, and which were copied.
type SentParts = Arc<Mutex<Vec<(bool, Vec<u8>)>>>;

/// Copies at most `copies` parts; those before have at least `part_min` bytes.
struct NotedUpload {
    sent: SentParts,
    copies: usize,
    part_min: u64,
}

impl Upload for NotedUpload {
    fn part(&mut self, bytes: Vec<u8>, _charge: Charge) -> Result<()> {
        self.sent.lock().unwrap().push((false, bytes));
        Ok(())
    }

    fn copied_part_min(&self, _source: &Url) -> Option<u64> {
        Some(self.part_min)
    }

    fn copy_part(&mut self, _from: &Url, _tag: &str, range: Range<u64>) -> Result<bool> {
        let may = self.copies > 0;
        if may {
            self.copies -= 1;
            self.sent.lock().unwrap().push((true, Counting::bytes(range)));
        }
        Ok(may)
    }

    fn wait_all(&mut self) -> Result<()> {
        Ok(())
    }

    fn complete(&mut self) -> Result<Completed> {
        Ok(Completed::Yes)
    }
}

/// Writes pieces, negative ones as bytes and others as copies; gives the parts, and the bytes that
/// they should have. In the source, pieces lie so many bytes behind where the output has them.
fn parts_from(
    behind: u64,
    pieces: &[i64],
    copies: usize,
    part_min: i64,
) -> (Vec<(bool, Vec<u8>)>, Vec<u8>) {
    let context = Context::new(64 << 20);
    let sent = SentParts::default();
    let stores = Stores::try_new(&Default::default(), &context).unwrap();
    let Ok(Location::Object(place)) = stores.locate("s3://b/out") else { panic!("a URL") };
    let mut output = ObjectOutput {
        place,
        upload: Some(Box::new(NotedUpload {
            sent: Arc::clone(&sent),
            copies,
            part_min: part_min.unsigned_abs(),
        })),
        has_sent: false,
        location: "s3://b/out".to_owned(),
        part: Vec::new(),
        stretch: None,
        charge: context.charge(0),
        part_bytes: context.budget().upload_part(),
        waits: Waits { all: Arc::default(), own: 0 },
        context,
    };
    let counting = Arc::new(Counting(1 << 40, Mutex::default()));
    let source: Arc<dyn RangeReader> = Arc::clone(&counting) as _;
    let (mut wanted, mut at) = (Vec::new(), behind);
    for piece in pieces {
        let bytes = Counting::bytes(at..at + piece.unsigned_abs());
        match *piece < 0 {
            true => output.write_all(&bytes).unwrap(),
            false => output.copy(&source, at..at + piece.unsigned_abs()).unwrap(),
        }
        wanted.extend(bytes);
        at += piece.unsigned_abs();
    }
    output.wait_all().unwrap();
    drop(output);
    let beginnings = counting.1.lock().unwrap().iter().filter(|range| range.end == 4).count();
    let least = part_min.max(MIB);
    let is_first = pieces.first() == Some(&-4) && pieces.get(1).is_some_and(|n| *n >= least);
    assert_eq!(beginnings, usize::from(behind == 0 && is_first), "{pieces:?}");
    (Arc::into_inner(sent).unwrap().into_inner().unwrap(), wanted)
}

fn parts(pieces: &[i64], copies: usize) -> (Vec<(bool, Vec<u8>)>, Vec<u8>) {
    parts_from(1, pieces, copies, 5 * MIB)
}

#[test]
fn an_output_that_begins_as_its_source_is_copied_from_there() {
    for (behind, pieces, sizes) in [
        (0, &[-4, 6 * MIB, 7 * MIB, -100][..], &[(true, 13 * MIB + 4), (false, 100)][..]),
        (0, &[-4, 2 * MIB, -100], &[(false, 2 * MIB + 104)]),
        (
            0,
            &[-4, 8 * MIB, -5 * MIB, 7 * MIB],
            &[(true, 8 * MIB + 4), (false, 5 * MIB), (true, 7 * MIB)],
        ),
        (0, &[13 * MIB], &[(true, 13 * MIB)]),
        (9, &[-4, 13 * MIB], &[(false, 5 * MIB), (true, 8 * MIB + 4)]),
        // Other bytes, and too many of them.
        (251, &[-4, 13 * MIB], &[(false, 5 * MIB), (true, 8 * MIB + 4)]),
        (0, &[-100, 13 * MIB], &[(false, 5 * MIB), (true, 8 * MIB + 100)]),
    ] {
        let (parts, wanted) = parts_from(behind, pieces, usize::MAX, 5 * MIB);
        let found: Vec<_> =
            parts.iter().map(|(copied, bytes)| (*copied, bytes.len() as i64)).collect();
        assert_eq!(found, sizes, "{behind} {pieces:?}");
        assert!(parts.into_iter().flat_map(|(_, bytes)| bytes).eq(wanted), "{pieces:?}");
    }
    // The store copies nothing after all.
    let (parts, wanted) = parts_from(0, &[-4, 13 * MIB, -100], 0, 5 * MIB);
    assert!(parts.into_iter().flat_map(|(_, bytes)| bytes).eq(wanted));
}

#[test]
fn small_outputs_wait_within_their_share_and_are_put_when_they_are_named() {
    let Twins { dir, mut roots } = twins("small-outputs");
    let (_, stores, context) = roots.swap_remove(0);
    let Ok(Location::Object(place)) = stores.locate("t/out") else { panic!("a bucket") };
    let (prefix, _) = Prefix::open(place, true);
    let most = context.budget().bytes(MemoryStage::SmallOutputs);
    let whole = |name: &str| {
        let mut output = prefix.create(name, &context).unwrap();
        output.write_all(&vec![7; most / 2]).unwrap();
        output.wait_all().unwrap();
        output
    };
    let (a, b, c) = (whole("a"), whole("b"), whole("c"));
    assert!(a.upload.is_none() && b.upload.is_none());
    assert!(c.upload.is_some(), "no room is left");
    assert_eq!(context.account().held_bytes(), most as u64 / 2 * 2);
    assert!(prefix.names().unwrap().is_empty());
    drop(b);
    let d = whole("d");
    assert!(d.upload.is_none(), "one that is gone leaves room");
    for output in [a, c, d] {
        assert_eq!(output.complete().unwrap(), Completed::Yes);
    }
    assert_eq!(prefix.names().unwrap(), ["a", "c", "d"]);
    assert_eq!(whole("a").complete().unwrap(), Completed::Occupied);
    assert_eq!(context.account().held_bytes(), 0);
    std::fs::remove_dir_all(dir).unwrap();
}

const MIB: i64 = 1 << 20;

#[test]
fn stretches_that_follow_each_other_are_copied_as_one() {
    let (parts, wanted) = parts(&[-4, 3 * MIB, 4 * MIB, 6 * MIB, -100], usize::MAX);
    let sizes: Vec<_> = parts.iter().map(|(copied, bytes)| (*copied, bytes.len())).collect();
    // The first part is filled up; the last may be small.
    let first = 5 << 20;
    assert_eq!(sizes, [(false, first), (true, wanted.len() - first - 100), (false, 100)]);
    assert_eq!(parts.into_iter().flat_map(|(_, bytes)| bytes).collect::<Vec<_>>(), wanted);
}

#[test]
fn a_stretch_that_is_too_short_is_read() {
    let (parts, wanted) = parts(&[-4, 9 * MIB, -4], usize::MAX);
    assert!(parts.iter().all(|(copied, _)| !copied));
    assert_eq!(parts.into_iter().flat_map(|(_, bytes)| bytes).collect::<Vec<_>>(), wanted);
}

#[test]
fn nothing_is_filled_up_where_parts_may_be_small() {
    let pieces = [-4, 2 * MIB, -100, MIB - 1, -100, 3 * MIB];
    let (parts, wanted) = parts_from(1, &pieces, usize::MAX, 1);
    let sizes: Vec<_> = parts.iter().map(|(copied, bytes)| (*copied, bytes.len() as i64)).collect();
    assert_eq!(
        sizes,
        [(false, 4), (true, 2 * MIB), (false, MIB + 199), (true, 3 * MIB)],
        "a stretch of less than 1 MiB is not worth a request"
    );
    assert!(parts.into_iter().flat_map(|(_, bytes)| bytes).eq(wanted));
}

#[test]
fn large_stretches_are_copied_in_several_requests() {
    let (parts, wanted) = parts(&[-4, 150 * MIB], usize::MAX);
    let copied = parts.iter().filter(|(copied, _)| *copied);
    assert_eq!(copied.count(), 2);
    assert!(parts.into_iter().flat_map(|(_, bytes)| bytes).eq(wanted));
}

#[test]
fn every_part_but_the_last_is_large_enough_and_no_byte_is_lost() {
    let mut numbers = Numbers(7);
    for case in 0..30 {
        let pieces: Vec<i64> = (0..8)
            .map(|_| {
                let most = 1 << (8 + numbers.below(16));
                let bytes = 1 + numbers.below(most);
                i64::try_from(bytes).unwrap() * if numbers.below(2) == 0 { -1 } else { 1 }
            })
            .collect();
        // A store may also stop copying on the way.
        let copies = if case % 3 == 0 { 1 } else { usize::MAX };
        let part_min = if case % 4 < 2 { 5 * MIB } else { 1 };
        let (parts, wanted) = parts_from(case % 2, &pieces, copies, part_min);
        let (_, all_but_last) = parts.split_last().unwrap();
        let sizes: Vec<_> = all_but_last.iter().map(|part| part.1.len() as i64).collect();
        assert!(sizes.iter().all(|size| *size >= part_min), "{pieces:?}");
        assert!(parts.into_iter().flat_map(|(_, bytes)| bytes).eq(wanted), "{pieces:?}");
    }
}
