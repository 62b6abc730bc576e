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
SELECT f.file_id, f.path, f.deletion_vector, f.size, f.removed_version, f.tombstone_until
FROM json_each(:keys) k CROSS JOIN files f INDEXED BY files_by_key
WHERE f.table_id = :table_id AND f.file_key = k.value

-- name: files_by_id
SELECT path, size, modification_time, partition_values, coalesce(deletion_vector, '') AS deletion_vector,
    coalesce(num_records, -1) AS num_records, coalesce(stats, '') AS stats
FROM files WHERE table_id = :table_id AND added_version <= :version AND removed_version > :version
    AND file_id IN (SELECT value FROM json_each(:keys))

-- name: files_before
SELECT file_id FROM files
WHERE table_id = :table_id AND added_version < :since AND added_version <= :version AND removed_version > :version
LIMIT :limit

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
FROM files WHERE table_id = :table_id AND file_id >= :first_file AND file_id < :beyond_file
    AND added_version <= :version AND removed_version > :version

-- name: gone_files
-- Left alone, SQLite may go through the rows instead of the list of those that went.
SELECT file_id FROM files INDEXED BY files_gone
WHERE table_id = :table_id AND file_id >= :first_file AND file_id < :beyond_file
    AND removed_version <= :version AND removed_version < 9223372036854775807

-- name: gone_counts
SELECT file_id / :width, count(*) FROM files INDEXED BY files_gone
WHERE table_id = :table_id AND removed_version < 9223372036854775807
GROUP BY 1

-- name: file_keys
SELECT file_key FROM files WHERE table_id = :table_id AND file_id >= :first_file AND file_id < :beyond_file
    AND added_version <= :version AND removed_version > :version

-- name: remove_file
UPDATE files SET removed_version = :version, tombstone_until = 9223372036854775807,
    deletion_timestamp = :deletion_timestamp, removal = :removal
WHERE table_id = :table_id AND file_id = :file_id
