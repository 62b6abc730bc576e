-- What PostgreSQL says differently.

-- name: lock_tables
-- In the order of their ids, so that two groups over the same tables never wait for each other in a circle.
SELECT {table_columns} FROM tables WHERE table_id IN ({keys}) ORDER BY table_id FOR UPDATE

-- name: keys
SELECT unnest(CAST(:keys AS BIGINT[]))

-- name: prunable
SELECT b.file_id FROM unnest(CAST(:classes AS BIGINT[]), CAST(:froms AS BIGINT[]), CAST(:tos AS BIGINT[])) AS r (class, lo, hi)
JOIN file_bounds b ON b.table_id = :table_id AND b.column_id = :column_id AND b.width_class = r.class
    AND b.lo >= r.lo AND b.lo <= r.hi AND b.hi >= :at_least
LIMIT :limit

-- name: files_by_id
SELECT path, size, modification_time, partition_values, coalesce(deletion_vector, '') AS deletion_vector,
    coalesce(num_records, -1) AS num_records, coalesce(stats, '') AS stats
FROM files WHERE table_id = :table_id AND added_version <= :version AND removed_version > :version
    AND file_id = ANY (CAST(:keys AS BIGINT[]))

-- name: files_before
SELECT file_id FROM files
WHERE table_id = :table_id AND added_version < :since AND added_version <= :version AND removed_version > :version
LIMIT :limit

-- name: ledger_present
-- Whoever waited here for another installer sees what that one made.
SELECT 1 FROM (SELECT pg_advisory_xact_lock(4711)) AS waited WHERE to_regclass('schema_versions') IS NOT NULL
