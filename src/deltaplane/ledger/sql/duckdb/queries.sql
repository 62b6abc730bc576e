-- What DuckDB says differently.

-- name: lock_tables
-- One process, one writer at a time: the store holds a lock of its own.
SELECT {table_columns} FROM tables WHERE table_id {among} ORDER BY table_id

-- name: among
IN (SELECT unnest(CAST(:keys AS BIGINT[])))

-- name: column_list
-- The rows of pruning_columns as one text, in any order.
CAST(json_group_array(json_array(i.column_id, i.since_version, i.definition)) AS TEXT)

-- name: prunable
-- A plain interval test: DuckDB scans a million rows in milliseconds.
SELECT b.file_id FROM file_bounds b
WHERE b.table_id = :table_id AND b.column_id = :column_id AND b.lo <= :at_most AND b.hi >= :at_least
LIMIT :limit

-- name: lock_schema
-- One process, one writer at a time: the store holds a lock of its own.
SELECT 1

-- name: ledger_present
SELECT 1 FROM duckdb_tables() WHERE table_name = 'schema_versions'

-- name: gone_counts
SELECT file_id // :width, count(*) FROM removals WHERE table_id = :table_id GROUP BY 1
