"""What Plait does not read or compact of the golden tables of other projects, and why.

Not here: where the tables are, and what is compared (`test_golden_tables`).
"""

from __future__ import annotations

from dataclasses import dataclass

import plait


@dataclass(frozen=True)
class Refusal:
    """Why tables are not read or not compacted.

    Attributes:
        calls: Which calls refuse them; `*` is all.
        error: What is raised.
        says: What the message says, besides the place.
        tables: Their short names.
    """

    calls: str
    error: type[plait.PlaitError]
    says: str
    tables: tuple[str, ...]


def refusal(calls: str, error: type[plait.PlaitError], says: str, tables: str) -> Refusal:
    """One with the names of its tables, one a line."""
    return Refusal(calls, error, says, tuple(line.strip() for line in tables.strip().splitlines()))


REFUSED = [
    # Column mapping.
    refusal(
        "read where",
        plait.Unsupported,
        "maps column names",
        """
        delta delta-rs/table_with_column_mapping
        delta delta-rs/table_with_partitioning_mapping
        delta golden/data-reader-timestamp_ntz-id-mode
        delta golden/data-reader-timestamp_ntz-name-mode
        delta golden/data-skipping-basic-stats-all-types-columnmapping-id
        delta golden/data-skipping-basic-stats-all-types-columnmapping-name
        delta golden/dv-with-columnmapping
        delta golden/table-with-columnmapping-mode-id
        delta golden/table-with-columnmapping-mode-name
        delta golden/table-with-icebegCompatV2Enabled
        delta kernel-rs-golden/data-reader-timestamp_ntz-id-mode
        delta kernel-rs-golden/data-reader-timestamp_ntz-name-mode
        delta kernel-rs-golden/data-skipping-basic-stats-all-types-columnmapping-id
        delta kernel-rs-golden/data-skipping-basic-stats-all-types-columnmapping-name
        delta kernel-rs-golden/dv-with-columnmapping
        delta kernel-rs-golden/table-with-columnmapping-mode-id
        delta kernel-rs-golden/table-with-columnmapping-mode-name
        delta kernel-rs/cdf-column-mapping-id-mode
        delta kernel-rs/cdf-column-mapping-name-mode
        delta kernel-rs/cdf-column-mapping-name-mode-3-7
        delta kernel-rs/partition_cm/id
        delta kernel-rs/partition_cm/name
        delta kernel-rs/stats-writing-all-types/delta
        delta kernel/column-mapping-id
        delta kernel/data-reader-partition-values-column-mapping-name
        delta kernel/data-reader-primitives-column-mapping-name
        delta spark/table-with-dv-small
        """,
    ),
    refusal(
        "scan",
        plait.Unsupported,
        "maps column names, and a file has a column without a field id",
        """
        delta delta-rs/table_with_partitioning_mapping
        delta kernel-rs/cdf-column-mapping-id-mode
        delta kernel-rs/cdf-column-mapping-name-mode
        delta kernel-rs/cdf-column-mapping-name-mode-3-7
        delta kernel/data-reader-partition-values-column-mapping-name
        delta kernel/data-reader-primitives-column-mapping-name
        delta spark/table-with-dv-small
        """,
    ),
    refusal(
        "scan",
        plait.SourceNotFound,
        "has no live file",
        """
        delta kernel-rs/partition_cm/id
        delta kernel-rs/partition_cm/name
        """,
    ),
    # What Iceberg's readers have to find.
    refusal(
        "compact",
        plait.Unsupported,
        "got `icebergCompatV2`",
        """
        delta golden/table-with-icebegCompatV2Enabled
        """,
    ),
    # Files outside of the table, which nobody has.
    refusal(
        "compact",
        plait.Unsupported,
        "files that lie elsewhere",
        """
        delta kernel-rs-golden/canonicalized-paths-normal-a
        delta kernel-rs-golden/canonicalized-paths-normal-b
        delta kernel-rs-golden/canonicalized-paths-special-a
        delta kernel-rs-golden/canonicalized-paths-special-b
        """,
    ),
    # Made up.
    refusal(
        "*",
        plait.Unsupported,
        "got `blahabl`",
        """
        delta delta-rs/simple_table_features
        """,
    ),
    # Commits that only a catalog knows.
    refusal(
        "*",
        plait.Unsupported,
        "got `catalogManaged`",
        """
        delta benchmarks/basic_catalog_managed/delta
        delta kernel/catalog-owned-preview
        delta unity/catalog_managed_0
        """,
    ),
    # The same before it was named so.
    refusal(
        "*",
        plait.Unsupported,
        "got `catalogOwned`",
        """
        delta delta-rs-logs/table_d
        delta delta-rs-logs/table_e
        delta delta-rs-logs/table_f
        delta delta-rs-logs/table_h
        delta delta-rs-logs/table_i
        """,
    ),
    # Clustered by columns.
    refusal(
        "compact",
        plait.Unsupported,
        "got `clustering`",
        """
        delta delta-rs/table-with-domain-metadata
        delta kernel-rs/crc-full
        """,
    ),
    # Text that is compared by other rules.
    refusal(
        "compact",
        plait.Unsupported,
        "got `collations-preview`",
        """
        delta golden/collations-preview-table
        """,
    ),
    refusal(
        "compact",
        plait.Unsupported,
        "got `collations`",
        """
        delta golden/collations-table
        """,
    ),
    # What others keep in the log by name.
    refusal(
        "compact",
        plait.Unsupported,
        "got `domainMetadata`",
        """
        delta delta-rs/table_with_liquid_clustering
        """,
    ),
    # Geometries.
    refusal(
        "*",
        plait.Unsupported,
        "got `geospatial`",
        """
        delta kernel-rs/table-with-geo
        """,
    ),
    # Columns that number themselves.
    refusal(
        "compact",
        plait.Unsupported,
        "got `identityColumns`",
        """
        delta delta-rs/checkpoint-v2-table
        """,
    ),
    # Commits that have to state their time.
    refusal(
        "compact",
        plait.Unsupported,
        "got `inCommitTimestamp`",
        """
        delta delta-rs/cdc_ict_table
        """,
    ),
    # Partition columns that files store, too.
    refusal(
        "compact",
        plait.Unsupported,
        "got `materializePartitionColumns`",
        """
        delta kernel-rs/partitioned_with_materialize_feature
        """,
    ),
    # Columns whose type is wider than that of older files.
    refusal(
        "*",
        plait.Unsupported,
        "got `typeWidening-preview`",
        """
        delta golden/type-widening
        delta golden/type-widening-nested
        delta kernel-rs/type-widening
        """,
    ),
    # Rules for VACUUM.
    refusal(
        "compact",
        plait.Unsupported,
        "got `vacuumProtocolCheck`",
        """
        delta golden/basic-with-vacuum-protocol-check-feature
        delta kernel-rs-golden/basic-with-vacuum-protocol-check-feature
        """,
    ),
    # Variants.
    refusal(
        "*",
        plait.Unsupported,
        "got `variantShredding-preview`",
        """
        delta delta-rs/spark-shredded-variant-preview-delta
        delta kernel/spark-shredded-variant-preview-delta
        delta spark/variant-stats-nested-no-checkpoint
        delta spark/variant-stats-no-checkpoint
        delta spark/variant-stats-state-reconstruction
        delta spark/variant-stats-with-struct-no-checkpoint
        """,
    ),
    refusal(
        "*",
        plait.Unsupported,
        "got `variantType-preview`",
        """
        delta delta-rs/spark-variant-checkpoint
        delta duckdb/unshredded-variant
        delta golden/spark-variant-checkpoint
        delta kernel-rs/unshredded-variant
        delta kernel/spark-variant-checkpoint
        """,
    ),
    refusal(
        "read where scan",
        plait.Unsupported,
        "got `variantType`",
        """
        delta delta-rs/spark-variant-stable-feature-checkpoint
        delta duckdb/variant/basic
        delta kernel/spark-variant-stable-feature-checkpoint
        """,
    ),
    # Columns with a default for files that lack them.
    refusal(
        "*",
        plait.Unsupported,
        "has a column with a value where files lack it",
        """
        iceberg duckdb/add_columns_with_defaults/default.db/add_columns_with_defaults
        iceberg duckdb/add_columns_with_defaults_in_struct/default.db/add_columns_with_defaults_in_struct
        """,
    ),
    # Iceberg tables of version 3.
    refusal(
        "compact",
        plait.Unsupported,
        "has a format version that PyIceberg does not commit",
        """
        iceberg duckdb/iceberg_v1_repro/repro/merch_v1
        iceberg duckdb/legacy_bare_deletion_vector/warehouse/default/legacy_bare_deletion_vector
        iceberg duckdb/timestamptz_ns
        """,
    ),
    # Snapshots without a list of manifests, as version 1 allows.
    refusal(
        "read where scan",
        plait.Unsupported,
        "has metadata that PyIceberg does not read",
        """
        iceberg duckdb/iceberg_v1_deprecated/default/legacy_v1
        """,
    ),
    # Columns by other names.
    refusal(
        "read where",
        plait.Unsupported,
        "has renamed or dropped the column",
        """
        iceberg duckdb/name_mapping/warehouse_1/mydb/t1
        """,
    ),
    # Deleted rows, which a scan cannot leave out.
    refusal(
        "scan",
        plait.Unsupported,
        "has rows that are deleted by a deletion vector",
        """
        delta golden/dv-with-columnmapping
        delta kernel-rs-golden/dv-with-columnmapping
        delta delta-rs/cdf-table-with-cdc-and-dvs
        delta delta-rs/table-with-dv-small
        delta delta-rs/table_with_deletion_logs
        delta golden/dv-partitioned-with-checkpoint
        delta golden/log-replay-dv-key-cases
        delta kernel-rs-golden/dv-partitioned-with-checkpoint
        delta kernel-rs-golden/log-replay-dv-key-cases
        delta kernel-rs/cdf-table-with-cdc-and-dvs
        delta kernel-rs/compacted-log-files-table
        delta kernel-rs/table-with-dv-small
        delta kernel-rs/with-short-dv
        delta kernel/basic-dv-no-checkpoint
        delta kernel/basic-dv-with-checkpoint
        delta spark/partitioned-table-with-dv-large
        delta spark/table-with-dv-large
        delta spark/table-with-dv-special-char
        iceberg duckdb/equality_delete_cross_partition/warehouse/ns/t
        iceberg duckdb/equality_delete_extra_column/warehouse/ns/t
        iceberg duckdb/equality_deletes/warehouse/mydb/mytable
        iceberg duckdb/equality_deletes/warehouse/mydb/mytable_partitioned
        iceberg duckdb/legacy_bare_deletion_vector/warehouse/default/legacy_bare_deletion_vector
        """,
    ),
    # Made up.
    refusal(
        "*",
        plait.Unsupported,
        "uses a reader version that Plait does not support",
        """
        delta golden/deltalog-invalid-protocol-version
        delta kernel-rs-golden/deltalog-invalid-protocol-version
        """,
    ),
    # Columns that number themselves.
    refusal(
        "compact",
        plait.Unsupported,
        "uses a writer version that Plait does not support",
        """
        delta delta-rs/issue-2152
        """,
    ),
    # A log whose actions take several lines each: the protocol has one a line.
    refusal(
        "*",
        plait.CorruptSource,
        "EOF while parsing",
        """
        delta duckdb/null_constraints_lists/delta_lake
        """,
    ),
    # A gap between commits.
    refusal(
        "*",
        plait.CorruptSource,
        "lacks a commit",
        """
        delta delta-rs-logs/table_c
        """,
    ),
    # Logs without what every log begins with.
    refusal(
        "*",
        plait.CorruptSource,
        "lacks metadata or protocol",
        """
        delta golden/data-reader-absolute-paths-escaped-chars
        delta golden/deltalog-state-reconstruction-from-checkpoint-missing-metadata
        delta golden/deltalog-state-reconstruction-without-metadata
        delta golden/deltalog-state-reconstruction-without-protocol
        delta kernel-rs-golden/data-reader-absolute-paths-escaped-chars
        delta kernel-rs-golden/deltalog-state-reconstruction-from-checkpoint-missing-metadata
        delta kernel-rs-golden/deltalog-state-reconstruction-without-metadata
        delta kernel-rs-golden/deltalog-state-reconstruction-without-protocol
        """,
    ),
    # Logs whose newest metadata has no schema.
    refusal(
        "*",
        plait.CorruptSource,
        "the log of a table lacks",
        """
        delta golden/canonicalized-paths-normal-a
        delta golden/canonicalized-paths-normal-b
        delta golden/canonicalized-paths-special-a
        delta golden/canonicalized-paths-special-b
        delta golden/corrupted-last-checkpoint
        delta golden/deltalog-commit-info
        delta golden/deltalog-state-reconstruction-from-checkpoint-missing-protocol
        delta golden/update-deleted-directory
        delta golden/versions-not-contiguous
        delta kernel-rs-golden/deltalog-commit-info
        delta kernel-rs-golden/deltalog-state-reconstruction-from-checkpoint-missing-protocol
        delta kernel-rs-golden/update-deleted-directory
        delta kernel-rs-golden/versions-not-contiguous
        """,
    ),
    # A file whose column may be null though the table's may not.
    refusal(
        "scan",
        plait.SchemaConflict,
        "schema conflict",
        """
        iceberg duckdb/name_mapping/warehouse_1/mydb/t1
        """,
    ),
    # Tables without rows: there is no file whose columns could be read.
    refusal(
        "read where scan",
        plait.SourceNotFound,
        "has no live file",
        """
        delta delta-rs/concurrent_workers
        delta delta-rs/delta-0.8-empty
        delta delta-rs/issue-2152
        delta delta-rs/simple_commit
        delta golden/collations-preview-table
        delta golden/collations-table
        delta golden/deltalog-getChanges
        delta golden/log-replay-special-characters
        delta golden/log-replay-special-characters-a
        delta kernel-rs-golden/deltalog-getChanges
        delta kernel-rs-golden/log-replay-special-characters
        delta kernel-rs-golden/log-replay-special-characters-a
        delta kernel-rs/cdf-table-delete-conditional-all-rows
        delta kernel-rs/cdf-table-delete-unconditional
        delta kernel-rs/cdf-table-simple
        delta kernel-rs/crc-full
        delta kernel-rs/partition_cm/none
        delta kernel-rs/table-with-cdf
        delta spark/dbr_8_1_generated_columns
        delta delta-rs/delta-live-table
        iceberg duckdb/custom_write_paths
        iceberg duckdb/timestamptz_ns
        """,
    ),
    # Logs without their data files: tests of logs alone, or of absent files.
    refusal(
        "*",
        plait.SourceNotFound,
        "source does not exist",
        """
        delta delta-rs-logs/table_a
        delta delta-rs-logs/table_b
        delta delta-rs-logs/table_g
        delta delta-rs/checkpoint_with_partitions
        delta delta-rs/checkpoints
        delta delta-rs/checkpoints_vacuumed
        delta delta-rs/latest_not_checkpointed
        delta delta-rs/with_checkpoint_no_last_checkpoint
        delta golden/checkpoint
        delta golden/delete-re-add-same-file-different-transactions
        delta golden/log-replay-special-characters-b
        delta kernel-rs-golden/checkpoint
        delta kernel-rs-golden/delete-re-add-same-file-different-transactions
        delta kernel-rs-golden/log-replay-special-characters-b
        delta kernel-rs/300k-add-files-100-col-partitioned
        delta kernel-rs/app-txn-with-last-updated
        delta kernel-rs/with_checkpoint_no_last_checkpoint
        iceberg duckdb/column_mapping/warehouse/default.db/my_table
        """,
    ),
    refusal(
        "compact",
        plait.SourceNotFound,
        "source does not exist",
        """
        delta delta-rs/spark-variant-stable-feature-checkpoint
        delta kernel/spark-variant-stable-feature-checkpoint
        """,
    ),
    refusal(
        "read where scan",
        plait.SourceNotFound,
        "source does not exist",
        """
        delta delta-rs/table-with-domain-metadata
        delta kernel-rs-golden/canonicalized-paths-normal-a
        delta kernel-rs-golden/canonicalized-paths-normal-b
        delta kernel-rs-golden/canonicalized-paths-special-a
        delta kernel-rs-golden/canonicalized-paths-special-b
        """,
    ),
    # A log without a commit.
    refusal(
        "*",
        plait.SourceNotFound,
        "there is no such Delta table",
        """
        delta kernel-rs/crc-malformed
        """,
    ),
    # Not a fault of the tables: they have no column to sort by.
    refusal(
        "compact",
        plait.UnsupportedKey,
        "sort column is a list, map or struct",
        """
        delta delta-rs/golden/data-reader-array-primitives
        delta delta-rs/table_with_null_stats_in_notnull_struct
        delta golden/data-reader-array-primitives
        delta golden/data-reader-nullable-field-invalid-schema-key
        delta kernel-rs-golden/data-reader-array-primitives
        delta kernel-rs-golden/data-reader-nullable-field-invalid-schema-key
        """,
    ),
    # Iceberg files that its metadata names elsewhere.
    refusal(
        "*", plait.SourceNotFound, "lacks a file of its metadata", "iceberg polars/iceberg-table"
    ),
    # Columns that files of Hive lack, as values of partitions.
    refusal(
        "read where scan",
        plait.Unsupported,
        "has a partition column that files lack, of a type that is not read",
        """
        iceberg duckdb/partition_binary
        iceberg duckdb/partition_fixed_length_binary/default.db/partition_fixed_length_binary
        iceberg duckdb/partition_time/default.db/partition_time
        """,
    ),
    refusal(
        "read where scan",
        plait.Unsupported,
        "has files that store the partition column `event_type`, and others do not",
        "iceberg duckdb/hive_partitioned_table",
    ),
    # Columns that are required by the table, and not by its files.
    refusal(
        "scan",
        plait.SchemaConflict,
        "column `user_id`",
        """
        iceberg duckdb/partition_timestamp/default.db/partition_timestamp
        iceberg duckdb/partition_timestamptz/default.db/partition_timestamptz
        """,
    ),
]
# Tables of which nothing is compared: one has more rows than a test can read.
LEFT_OUT = ("spark/table-with-dv-gigantic",)
# Tables whose data file is so large that partial clones lack it.
LARGE = ("golden/parquet-decimal-dictionaries-v1",)
# Tables whose published rows are not those of the protocol, so that delta-rs alone tells. These are
# of a session in Los Angeles; kernel-rs skips them as well.
MISSTATED = ("kernel-rs-golden/data-reader-partition-values",)
# Tables of which delta-rs gives other rows than other readers: its INT96 ends in 2262.
MISREAD = ("delta-rs/table_with_edge_timestamps",)
MICROSECONDS = {"coerce_int96_timestamp_unit": "us"}
