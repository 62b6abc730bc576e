-- What PostgreSQL says differently.

-- name: lock_tables
-- In the order of their ids, so that two groups over the same tables never wait for each other in a circle.
SELECT {table_columns} FROM tables WHERE table_id {among} ORDER BY table_id FOR UPDATE

-- name: among
-- Never a join: without statistics of a table just filled the planner would compare every key with every row.
= ANY (CAST(:keys AS BIGINT[]))

-- name: column_list
-- The rows of pruning_columns as one text, in any order.
CAST(json_agg(json_build_array(i.column_id, i.since_version, i.definition)) AS TEXT)

-- name: prunable
-- One search of the index for each range. The inner LIMIT keeps the planner, which knows nothing of a table just filled, from
-- reading all intervals of the column instead.
SELECT b.file_id FROM unnest(CAST(:classes AS BIGINT[]), CAST(:froms AS BIGINT[]), CAST(:tos AS BIGINT[])) AS r (class, lo, hi)
CROSS JOIN LATERAL (SELECT i.file_id FROM file_bounds i
    WHERE i.table_id = :table_id AND i.column_id = :column_id AND i.width_class = r.class
        AND i.lo >= r.lo AND i.lo <= r.hi AND i.hi >= :at_least
    LIMIT :limit) b
LIMIT :limit

-- name: lock_schema
-- Installers and migrations take turns, until the end of the transaction. It is a statement of its own: what follows must
-- be planned after the wait, so that it sees what the other one made.
SELECT pg_advisory_xact_lock(4711)

-- name: ledger_present
-- Asked of the catalog and not of to_regclass, which may remember from before the wait that there was none.
SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = 'schema_versions' AND n.nspname = ANY (current_schemas(false))

-- name: hidden_ledger
-- A ledger in the search path that this user may not look into.
SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = 'schema_versions' AND NOT has_schema_privilege(n.oid, 'USAGE')
    AND n.nspname IN (SELECT trim(both ' "' FROM s) FROM unnest(string_to_array(current_setting('search_path'), ',')) AS s)
LIMIT 1

-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: session_settings
-- A commit is on the disk when it is acknowledged, whatever the server's default is. And a machine that vanishes in the midst of
-- one must not keep its locks for hours: the server asks a silent client, and ends its session after three missed answers.
SELECT set_config('synchronous_commit', 'on', false), set_config('tcp_keepalives_idle', '30', false),
    set_config('tcp_keepalives_interval', '10', false), set_config('tcp_keepalives_count', '3', false)

-- name: wide_settings
-- For statements about all files of a table. One that was just filled is empty for the planner, and a nested loop, which is best
-- for a few rows, would compare every file with every removal.
SELECT set_config('enable_nestloop', 'off', false)

-- name: note_published
-- mark_published and record_published in one, and the row of the table is locked first, as by whoever commits. What it writes may
-- be lost in a power failure, because it can be found out again: COMMIT need not wait for the disk.
WITH marked AS (
    UPDATE tables SET published_version = :last WHERE table_id = :table_id AND published_version < :last RETURNING 1
), recorded AS (
    UPDATE publications SET published_at = :now, last_error = NULL
    WHERE table_id = :table_id AND version BETWEEN :first AND :last AND published_at IS NULL
        AND (SELECT count(*) FROM marked) >= 0
)
SELECT set_config('synchronous_commit', 'off', true)
