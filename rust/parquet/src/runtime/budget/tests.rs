//! Shares of the limit add up, and the documents have each of them.

use super::MemoryStage as Stage;
use super::*;

/// The stages that live at one time, by call, and how often each.
const CALLS: &[(&str, &[(Stage, usize)])] = &[
    (
        "plan",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::PageLocations, 1),
            (Stage::FileReaders, 1),
            (Stage::PlannedDictionaries, 1),
            (Stage::PlannedPages, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
    (
        "merge: prepare",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::PageLocations, 1),
            (Stage::FileReaders, 1),
            (Stage::PreparedDictionaries, 1),
            (Stage::RankTables, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
    (
        "merge: execute",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::PageLocations, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
            (Stage::RankTables, 1),
            (Stage::KeyBatches, 1),
            (Stage::ReadAhead, 1),
            (Stage::SourcePages, 1),
            // One batch is woven while the next is put in order.
            (Stage::WindowSteps, 2),
            (Stage::BatchSteps, 2),
            (Stage::WaitingChunks, 2),
            (Stage::DictionaryUnions, 1),
            (Stage::CarriedCursors, 1),
            (Stage::UploadPart, 1),
            (Stage::SentParts, 1),
            (Stage::SmallOutputs, 1),
            (Stage::SortedRanges, 1),
        ],
    ),
    (
        "sort",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::SortedRanges, 1),
            (Stage::PageLocations, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
            (Stage::RankTables, 1),
            (Stage::ReadAhead, 1),
            // One chunk is written while the next is put in order.
            (Stage::SortKeys, 2),
            (Stage::SortedLeaves, 1),
            (Stage::WaitingChunks, 2),
            (Stage::DictionaryUnions, 1),
        ],
    ),
    (
        "run writer",
        &[
            // The rows, and as much again while they are copied and encoded.
            (Stage::WrittenRows, 2),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
    (
        "overlay",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::PageLocations, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
            (Stage::ExpandedPage, 1),
            (Stage::OverlayChunks, 1),
            (Stage::LayerBatches, 1),
            (Stage::LayerReads, 1),
            (Stage::CarriedCursors, 1),
            (Stage::UploadPart, 1),
            (Stage::SentParts, 1),
            (Stage::SmallOutputs, 1),
        ],
    ),
    (
        "scan",
        &[
            (Stage::ScanDecoding, 1),
            (Stage::ScanBatch, 1),
            (Stage::ScanAhead, 1),
            (Stage::ScanReads, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
    (
        "streams",
        &[
            (Stage::StreamBatches, 1),
            (Stage::StreamReads, 1),
            (Stage::ExpandedPage, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
    (
        "deleted rows",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::DeletedKeys, 1),
            (Stage::StreamBatches, 1),
            (Stage::StreamReads, 1),
            (Stage::ExpandedPage, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
    (
        "read",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::PageLocations, 1),
            // The rows that are merged, and those that wait.
            (Stage::ReadWindows, 2),
            (Stage::ReadSpill, 1),
            (Stage::ReadBatch, 1),
            (Stage::ReadIndexes, 1),
            (Stage::CheckedReads, 1),
            (Stage::ExpandedPage, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
    (
        "verify",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::PageLocations, 1),
            (Stage::FileReaders, 1),
            (Stage::RowHashes, 1),
            (Stage::ExpandedPage, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
    (
        "compact and survey",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::PageLocations, 1),
            (Stage::FileReaders, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
    (
        "inspect",
        &[
            (Stage::DecodedFooters, 1),
            (Stage::StoredFooters, 1),
            (Stage::PageLocations, 1),
            (Stage::FileReaders, 1),
            (Stage::ExpandedPage, 1),
            (Stage::IdleBuffers, 1),
            (Stage::StoreWindows, 1),
        ],
    ),
];

/// A join reads and writes a local folder; so many of its sorted runs are open.
const JOIN: &[(Stage, usize)] = &[
    (Stage::JoinCache, 1),
    (Stage::JoinState, 1),
    (Stage::JoinMerge, 1),
    (Stage::RunLocations, 16),
];

fn sum(stages: &[(Stage, usize)], budget: Budget) -> usize {
    stages.iter().map(|(stage, count)| budget.bytes(*stage) * count).sum()
}

#[test]
fn stages_of_a_call_stay_below_the_limit_together() {
    for limit in [64_000_000, 512_000_000, 8_000_000_000] {
        let budget = Budget::new(limit);
        for (call, stages) in CALLS {
            let all = sum(stages, budget);
            assert!(all <= limit, "{call}: {all} bytes of {limit}");
        }
        let all = sum(JOIN, budget);
        assert!(all <= limit, "join: {all} bytes of {limit}");
    }
}

/// `SourcePages` as `source pages`.
fn words(stage: Stage) -> String {
    let mut words = String::new();
    for letter in format!("{stage:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[test]
fn the_documents_have_every_share() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/performance.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, section) = page.split_once("### Shares of the limit").unwrap();
    let mut rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).collect();
    rows.retain(|row| row.contains("/"));
    let stages = CALLS.iter().flat_map(|(_, stages)| *stages).chain(JOIN);
    let mut expected: Vec<String> = stages
        .map(|(stage, _)| {
            let (parts, of) = stage.share();
            format!("| {} | {parts}/{of} |", words(*stage))
        })
        .collect();
    expected.sort();
    expected.dedup();
    for row in &expected {
        assert!(rows.iter().any(|r| r.starts_with(row.as_str())), "docs/performance.md: {row}");
    }
    let shares = rows.iter().filter(|row| row.split('|').nth(2).is_some_and(is_share)).count();
    assert_eq!(shares, expected.len(), "rows of docs/performance.md that no stage has");
}

fn is_share(cell: &str) -> bool {
    cell.trim()
        .split_once('/')
        .is_some_and(|(n, of)| n.parse::<u8>().is_ok() && of.parse::<u16>().is_ok())
}

#[test]
fn sizes_at_the_default_limit() {
    let budget = Budget::new(512_000_000);
    let usual = budget.merge(16, 3, 2);
    assert_eq!((usual.key_rows, usual.window_rows), (4096, 4_000_000));
    assert_eq!((usual.batch_steps_bytes, usual.waiting_bytes), (3_200_000, 8_000_000));
    assert!(usual.read_ahead_bytes >= 128 << 10, "what is read at once of a local file");
    assert_eq!((budget.idle_buffers(), budget.file_readers()), (16_000_000, 16));
    let scan = budget.scan(16 << 20, 8);
    assert_eq!((scan.ahead_bytes, scan.threads), (64_000_000, 8));
    assert_eq!(budget.layer(2), budget.layer(4));
    assert_eq!(budget.layer(2).batch_bytes, 16 << 20);
}

#[test]
fn small_merges_share_threads_and_memory() {
    let share = |limit: usize, threads, merges| {
        let TaskShares { at_once, threads, limit_bytes } =
            Budget::new(limit).share_merges(threads, merges);
        (at_once, threads, limit_bytes)
    };
    // One thread, one merge, or memory for one.
    for of in [(512_000_000, 1, 9), (512_000_000, 2, 1), (64_000_000, 2, 9)] {
        assert_eq!(share(of.0, of.1, of.2), (1, of.1, of.0));
    }
    // As many as there are threads, then as many as have memory for some threads each.
    assert_eq!(share(512_000_000, 2, 9), (2, 1, 211_000_000));
    assert_eq!(share(512_000_000, 4, 9), (2, 2, 186_000_000));
    assert_eq!(share(512_000_000, 64, 9), (2, 4, 123_500_000));
    assert_eq!(share(4_000_000_000, 8, 9), (8, 1, 470_000_000));
    assert_eq!(share(4_000_000_000, 64, 9), (8, 8, 295_000_000));
}

#[test]
fn tasks_share_threads_and_memory() {
    let share = |limit: usize, threads, tasks, needed| {
        let TaskShares { at_once, threads, limit_bytes } =
            Budget::new(limit).share_tasks(threads, tasks, needed);
        (at_once, threads, limit_bytes)
    };
    // Few threads, or one task: all that there is.
    for threads in 1..8 {
        assert_eq!(share(512_000_000, threads, 9, 0), (1, threads, 512_000_000));
    }
    assert_eq!(share(512_000_000, 8, 1, 0), (1, 8, 512_000_000));
    assert_eq!(share(512_000_000, 8, 9, 0), (2, 4, 136_000_000));
    // More threads than there is memory for.
    assert_eq!(share(512_000_000, 64, 9, 0), (2, 4, 123_500_000));
    assert_eq!(share(512_000_000, 64, 1, 0), (1, 14, 512_000_000));
    assert_eq!(share(16_000_000, 64, 9, 0), (1, 4, 16_000_000));
    assert_eq!(share(4_000_000_000, 64, 9, 0), (8, 8, 295_000_000));
    assert_eq!(share(4_000_000_000, 64, 3, 0), (3, 21, 786_666_666));
    // Tasks whose pages need more than their share run one after the other.
    assert_eq!(share(512_000_000, 8, 9, 136_000_000), (2, 4, 136_000_000));
    assert_eq!(share(512_000_000, 8, 9, 137_000_000), (1, 8, 512_000_000));
    for (limit, threads, tasks) in [(512_000_000, 64, 64), (4_000_000_000, 40, 5), (1 << 30, 17, 3)]
    {
        let (at_once, threads, each) = share(limit, threads, tasks, 0);
        let all = at_once * (each + threads * THREAD_BYTES) + PROCESS_BYTES;
        assert!(at_once > 1 && all <= limit, "{limit} {threads} {tasks}: {all}");
    }
}

#[test]
fn pages_of_sixteen_files_of_twenty_columns_stay_open() {
    // With 10.5 MB a file, a read of all columns of W1 spilled its rows and read pages twice.
    let budget = Budget::new(512_000_000);
    assert!(budget.read_pages(16, 4) >= 12_000_000);
}

#[test]
fn shares_shrink_with_sources_and_stay_usable() {
    let few = Budget::new(512 << 20).merge(16, 4, 2);
    let many = Budget::new(512 << 20).merge(1000, 4, 2);
    assert_eq!(few.key_rows, 4096);
    assert!(many.key_rows < few.key_rows && many.key_rows >= 64);
    assert!(many.read_ahead_bytes < few.read_ahead_bytes);
    let tiny = Budget::new(16 << 20).merge(5000, 8, 64);
    assert!(tiny.key_rows >= 64 && tiny.read_ahead_bytes >= 4 << 10);
}

#[test]
fn a_scan_shares_its_limit_among_its_threads() {
    for limit in [16 << 20, 100_000_000, 512_000_000, 64_000_000_000] {
        for threads in [1, 2, 64] {
            for batch in [256 << 10, 16 << 20, 1 << 30] {
                let sizes = Budget::new(limit).scan(batch, threads);
                let each = sizes.file.batch_bytes + sizes.file.read_bytes;
                let all = each * sizes.threads + sizes.ahead_bytes;
                assert!(all <= limit, "{limit} {threads} {batch}");
            }
        }
    }
}
