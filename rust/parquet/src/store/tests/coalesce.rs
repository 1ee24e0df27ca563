//! Reads of objects in memory, each of which is noted.

use plait_core::Kind;

use super::*;
use crate::runtime::Context;
use crate::store::bucket::{BegunRead, ReadDone};

/// Notes what is read of `len` bytes that count up. Reads that begin wait until a test ends them.
#[derive(Default)]
struct NotedReads {
    len: u64,
    reads: Mutex<Vec<Range<u64>>>,
    begun: Mutex<Vec<(Range<u64>, ReadDone)>>,
}

impl NotedReads {
    fn new(len: u64) -> Arc<Self> {
        Arc::new(Self { len, ..Self::default() })
    }

    fn reads(&self) -> Vec<Range<u64>> {
        self.reads.lock().unwrap().clone()
    }

    fn begun(&self) -> Vec<Range<u64>> {
        self.begun.lock().unwrap().iter().map(|(range, _)| range.clone()).collect()
    }

    /// Whether a read of `range` is the only one that began and did not end.
    fn began_only(&self, range: Range<u64>) -> bool {
        let begun = self.begun();
        begun.len() == 1 && begun.contains(&range)
    }

    /// Ends the read that began first: well, or not.
    fn end_first(&self, well: bool) {
        let (range, done) = self.begun.lock().unwrap().remove(0);
        done(well.then(|| counted(range)));
    }
}

fn counted(range: Range<u64>) -> Bytes {
    range.map(|n| (n % 251) as u8).collect()
}

impl RangeReader for NotedReads {
    fn path(&self) -> &str {
        "noted"
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.reads.lock().unwrap().push(range.clone());
        Ok(counted(range))
    }
    fn begin_read(&self, range: Range<u64>, done: ReadDone) -> Option<BegunRead> {
        self.begun.lock().unwrap().push((range, done));
        Some(Box::new(()))
    }
    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
    fn is_local(&self) -> bool {
        false
    }
}

fn noted(len: u64, limit: usize) -> (Coalesced, Arc<NotedReads>, Context) {
    let context = Context::new(limit);
    let windows = Arc::new(WindowCache::new(&context));
    let reads = NotedReads::new(len);
    (Coalesced::new(reads.clone(), Bytes::new(), &windows), reads, context)
}

fn check(store: &Coalesced, range: Range<u64>) {
    assert_eq!(store.read(range.clone()).unwrap(), counted(range));
}

#[test]
fn pages_that_follow_each_other_take_few_requests() {
    let (store, noted, _) = noted(8 << 20, 512 << 20);
    for page in 0..1024 {
        check(&store, page * 4096..(page + 1) * 4096);
    }
    let reads = noted.reads();
    assert_eq!(reads.len(), 8, "{reads:?}");
}

#[test]
fn no_byte_of_a_window_is_fetched_again() {
    let (store, noted, _) = noted(8 << 20, 512 << 20);
    for range in [4..200, 200..100_000, 4..200, 50_000..160_000, 0..4, 4..160_000, 0..3] {
        check(&store, range);
    }
    let reads = noted.reads();
    let mut sorted = reads.clone();
    sorted.sort_by_key(|read| read.start);
    let overlaps = sorted.windows(2).filter(|pair| pair[0].end > pair[1].start).count();
    assert!(overlaps == 0 && reads.len() <= 4, "{reads:?}");
}

#[test]
fn what_is_read_again_is_kept_if_there_is_room() {
    let (store, noted, context) = noted(64 << 20, 96 << 20);
    store.windows.read_again();
    let dictionary = 5000..400_000;
    for range in [dictionary.clone(), dictionary.clone(), 5000..300_000] {
        assert_eq!(store.read_and_keep(range.clone()).unwrap(), counted(range));
    }
    check(&store, 6000..7000);
    assert_eq!(noted.reads(), vec![dictionary.clone()]);
    // Others make it go to disk, as what is large does at once.
    for place in (1..40).map(|n| n << 20) {
        store.read_and_keep(place..place + 400_000).unwrap();
    }
    let large = 50 << 20..53 << 20;
    for range in [large.clone(), dictionary, large] {
        assert_eq!(store.read_and_keep(range.clone()).unwrap(), counted(range));
    }
    assert_eq!(noted.reads().len(), 1 + 39 + 1);
    assert!(context.account().peak_bytes() <= 6 << 20, "{}", context.account().peak_bytes());
}

#[test]
fn the_end_brings_the_indexes_and_large_reads_stay_as_they_are() {
    let (store, noted, _) = noted(8 << 20, 512 << 20);
    let len = store.len();
    check(&store, len - 8..len);
    check(&store, len - 100_000..len - 50_000);
    check(&store, 0..1 << 20);
    let reads = noted.reads();
    assert_eq!(reads, [len - TAIL_BYTES..len, 0..1 << 20]);
    assert_eq!(store.read(len..len + 1).unwrap_err().kind(), Kind::CorruptSource);
}

#[test]
fn what_opening_brought_is_not_read_again() {
    let context = Context::new(16 << 20);
    let windows = Arc::new(WindowCache::new(&context));
    let noted = NotedReads::new(1_000_000);
    let store = Coalesced::new(noted.clone(), counted(800_000..1_000_000), &windows);
    let other = Coalesced::new(NotedReads::new(64 << 20), Bytes::new(), &windows);
    for place in (0..64).map(|n| n << 20) {
        check(&other, place..place + 10);
    }
    for range in [999_992..1_000_000, 850_000..900_000, 800_000..1_000_000] {
        check(&store, range);
    }
    assert_eq!(noted.reads(), []);
    let before = 799_999..800_000;
    check(&store, before.clone());
    assert_eq!(noted.reads(), [before]);
}

#[test]
fn small_objects_without_room_come_back_from_disk() {
    let context = Context::new(16 << 20);
    let windows = Arc::new(WindowCache::new(&context));
    let noted: Vec<_> = (0..40).map(|_| NotedReads::new(100_000)).collect();
    let small = |reads: &Arc<NotedReads>| Coalesced::new(reads.clone(), Bytes::new(), &windows);
    let stores: Vec<_> = noted.iter().map(small).collect();
    for range in [99_992..100_000, 0..10, 5..99_000] {
        stores.iter().for_each(|store| check(store, range.clone()));
    }
    assert!(noted.iter().all(|noted| noted.reads().len() == 1));
    assert!(context.account().peak_bytes() <= 1 << 20, "{}", context.account().peak_bytes());
    assert!(context.counters().spilled_bytes() >= 33 * 100_000);
}

#[test]
fn an_end_that_is_shorter_than_its_object_is_not_taken_for_all_of_it() {
    let context = Context::new(16 << 20);
    let windows = Arc::new(WindowCache::new(&context));
    let ends = counted(60_000..100_000);
    let short = |_| Coalesced::new(NotedReads::new(100_000), ends.clone(), &windows);
    let stores: Vec<_> = (0..60).map(short).collect();
    stores.iter().for_each(|store| check(store, 99_992..100_000));
    stores.iter().for_each(|store| check(store, 10..50));
}

#[test]
fn windows_stay_within_their_share_and_go_with_their_file() {
    let (store, _, context) = noted(64 << 20, 16 << 20);
    for place in (0..64).map(|n| n << 20) {
        check(&store, place..place + 10);
    }
    assert!(context.account().peak_bytes() <= 1 << 20, "{}", context.account().peak_bytes());
    assert!(context.account().held_bytes() > 0);
    drop(store);
    assert_eq!(context.account().held_bytes(), 0);
}

const MB: u64 = 1 << 20;

#[test]
fn what_is_expected_is_requested_before_it_is_read_and_not_again() {
    let (store, noted, context) = noted(64 * MB, 512 << 20);
    store.will_read(MB..MB + 100_000, 64 * MB);
    // As many bytes behind it, and not the same once more.
    store.will_read(MB..MB + 100_000, 64 * MB);
    store.will_read(MB + 50_000..MB + 90_000, 64 * MB);
    assert!(noted.began_only(MB..MB + 200_000));
    assert!(context.account().held_bytes() >= 200_000);
    noted.end_first(true);
    check(&store, MB + 10..MB + 70_000);
    // What follows is requested while there is half of it left, in larger requests each time.
    store.will_read(MB + 100_000..MB + 110_000, 64 * MB);
    assert_eq!(noted.begun(), []);
    store.will_read(MB + 150_000..MB + 160_000, 64 * MB);
    assert!(noted.began_only(MB + 200_000..MB + 320_000));
    noted.end_first(true);
    store.will_read(MB + 200_000..MB + 310_000, MB + 400_000);
    assert!(noted.began_only(MB + 320_000..MB + 400_000));
    noted.end_first(true);
    check(&store, MB..MB + 400_000);
    assert_eq!(noted.reads(), []);
    drop(store);
    assert_eq!(context.account().held_bytes(), 0);
}

#[test]
fn a_reader_waits_for_what_was_requested() {
    let (store, noted, _) = noted(64 * MB, 512 << 20);
    store.will_read(0..1000, 1000);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| check(&store, 0..1000));
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(!reader.is_finished());
        noted.end_first(true);
    });
    assert_eq!(noted.reads(), []);
}

#[test]
fn a_request_ahead_that_fails_or_brings_other_bytes_is_sent_again_by_the_reader() {
    let (store, noted, _) = noted(64 * MB, 512 << 20);
    store.will_read(0..1000, 1000);
    noted.end_first(false);
    check(&store, 0..1000);
    store.will_read(MB..MB + 1000, MB + 1000);
    let (_, done) = noted.begun.lock().unwrap().remove(0);
    done(Some(counted(MB..MB + 999)));
    check(&store, MB..MB + 1000);
    assert_eq!(noted.reads(), [0..65_536, MB..MB + 65_536]);
}

#[test]
fn requests_ahead_stay_within_their_share_and_who_waits_goes_first() {
    let (store, noted, context) = noted(1024 * MB, 96 << 20);
    for place in (0..200).map(|n| n * MB) {
        store.will_read(place..place + 100_000, place + 100_000);
    }
    // Half of a 24th of the limit.
    assert_eq!(noted.begun().len(), 20);
    assert!(context.account().held_bytes() <= 2 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| check(&store, 150 * MB..150 * MB + 10));
        while noted.begun().last() != Some(&(150 * MB..150 * MB + 100_000)) {
            std::thread::yield_now();
        }
        (0..21).for_each(|_| noted.end_first(true));
    });
    // The others begin when someone reads or expects.
    store.will_read(0..10, 10);
    while !noted.begun().is_empty() {
        noted.end_first(true);
        store.will_read(0..10, 10);
    }
    for place in (0..200).map(|n| n * MB) {
        check(&store, place..place + 100_000);
    }
    assert_eq!(noted.reads(), []);
    assert!(context.account().peak_bytes() <= 5 << 20, "{}", context.account().peak_bytes());
    assert!(context.counters().spilled_bytes() > 150 * 100_000);
}

#[test]
fn a_cancelled_call_does_not_wait() {
    let (store, noted, context) = noted(64 * MB, 512 << 20);
    store.will_read(0..1000, 1000);
    context.cancel();
    assert_eq!(store.read(0..1000).unwrap_err().kind(), Kind::Cancelled);
    assert_eq!(noted.reads(), []);
}

#[test]
fn what_has_no_room_on_disk_is_not_requested_ahead() {
    let (store, noted, _) = noted(1024 * MB, 1 << 20);
    store.will_read(0..100 * MB, 100 * MB);
    let (mut begun, mut end) = (0, 0);
    while let Some(range) = noted.begun().first().cloned() {
        (begun, end) = (begun + range.end - range.start, range.end);
        noted.end_first(true);
        // Nothing more is expected: what is queued begins.
        check(&store, 200 * MB..200 * MB + 1);
    }
    assert!((3 * MB..=4 * MB).contains(&begun), "{begun} bytes up to {end}");
    check(&store, 0..end);
}

#[test]
fn only_files_that_are_read_again_stay_on_disk() {
    for is_again in [false, true] {
        let context = Context::new(16 << 20);
        let windows = Arc::new(WindowCache::new(&context));
        if is_again {
            windows.read_again();
        }
        let noted = NotedReads::new(64 * MB);
        let store = Coalesced::new(noted.clone(), Bytes::new(), &windows);
        let parts = || (0..160).map(|n| n * 65_536..(n + 1) * 65_536);
        parts().for_each(|part| check(&store, part));
        let requests = noted.reads().len();
        parts().for_each(|part| check(&store, part));
        match is_again {
            true => assert_eq!(noted.reads().len(), requests),
            false => {
                assert!(noted.reads().len() > requests + 100);
                assert_eq!(context.counters().spilled_bytes(), 0);
            }
        }
    }
}

#[test]
fn what_was_read_and_will_be_again_stays() {
    for is_said in [false, true] {
        let context = Context::new(16 << 20);
        let windows = Arc::new(WindowCache::new(&context));
        let noted = NotedReads::new(64 * MB);
        let store = Coalesced::new(noted.clone(), Bytes::new(), &windows);
        check(&store, 0..65_536);
        if is_said {
            store.will_read(0..65_536, 65_536);
        }
        // Others take all of the memory.
        (16..160).for_each(|n| check(&store, n * 65_536..(n + 1) * 65_536));
        let requests = noted.reads().len();
        check(&store, 0..65_536);
        assert_eq!(noted.reads().len(), requests + usize::from(!is_said));
        assert_eq!(context.counters().spilled_bytes() > 0, is_said);
        // It goes once it was read again.
        (160..320).for_each(|n| check(&store, n * 65_536..(n + 1) * 65_536));
        let requests = noted.reads().len();
        check(&store, 0..65_536);
        assert_eq!(noted.reads().len(), requests + 1);
    }
}
