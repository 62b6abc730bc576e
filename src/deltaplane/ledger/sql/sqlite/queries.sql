-- What SQLite says differently.

-- name: lock_tables
-- BEGIN IMMEDIATE has locked the whole database already.
SELECT {table_columns} FROM tables WHERE table_id {among} ORDER BY table_id

-- name: among
IN (SELECT value FROM json_each(:keys))

-- name: column_list
-- The rows of pruning_columns as one text, in any order.
json_group_array(json_array(i.column_id, i.since_version, i.definition))

-- name: prunable
SELECT b.file_id FROM json_each(:ranges) r CROSS JOIN file_bounds b
WHERE b.table_id = :table_id AND b.column_id = :column_id AND b.width_class = json_extract(r.value, '$[0]')
    AND b.lo >= json_extract(r.value, '$[1]') AND b.lo <= json_extract(r.value, '$[2]') AND b.hi >= :at_least
LIMIT :limit

-- name: files_by_key
-- The keys first: left alone, SQLite goes through all files of the table and looks each of them up in the list.
SELECT f.file_id, f.path, f.deletion_vector, f.size FROM json_each(:keys) k CROSS JOIN files f INDEXED BY files_by_key
WHERE f.table_id = :table_id AND f.file_key = k.value

-- name: lock_schema
-- BEGIN IMMEDIATE has locked the whole database already.
SELECT 1

-- name: ledger_present
SELECT 1 FROM sqlite_master WHERE name = 'schema_versions'

-- name: file_range
-- Between which ids the files of a table lie; wide reads go through them in chunks.
SELECT (SELECT file_id FROM files WHERE table_id = :table_id ORDER BY file_id LIMIT 1),
    (SELECT file_id FROM files WHERE table_id = :table_id ORDER BY file_id DESC LIMIT 1)

-- name: files_narrow
SELECT path, size, modification_time, {optional} coalesce(num_records, -1) AS num_records, coalesce(stats, '') AS stats
FROM files f WHERE f.table_id = :table_id AND f.file_id >= :first_file AND f.file_id < :beyond_file
    AND f.added_version <= :version AND NOT {gone}

-- name: file_keys
SELECT file_key FROM files f WHERE f.table_id = :table_id AND f.file_id >= :first_file AND f.file_id < :beyond_file
    AND f.added_version <= :version AND NOT {gone}
