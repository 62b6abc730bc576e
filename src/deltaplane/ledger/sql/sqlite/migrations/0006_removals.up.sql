-- Rows of `files` never change any more: what went is noted beside them. Many files go in one commit, and to write each of
-- their rows anew took several times as long.

-- The files that went: a tombstone is visible from removed_version up to, not including, tombstone_until.
CREATE TABLE removals (
    table_id            INTEGER NOT NULL,
    file_id             INTEGER NOT NULL,
    removed_version     INTEGER NOT NULL,
    tombstone_until     INTEGER NOT NULL,
    deletion_timestamp  INTEGER,
    removal             TEXT,
    PRIMARY KEY (table_id, file_id)
) STRICT, WITHOUT ROWID;

INSERT INTO removals (table_id, file_id, removed_version, tombstone_until, deletion_timestamp, removal)
SELECT table_id, file_id, removed_version, tombstone_until, deletion_timestamp, removal
FROM files WHERE removed_version < 9223372036854775807;

DROP INDEX files_gone;
DROP INDEX files_by_key;
ALTER TABLE files RENAME TO files_before;

CREATE TABLE files (
    table_id                    INTEGER NOT NULL,
    file_id                     INTEGER NOT NULL,
    added_version               INTEGER NOT NULL,
    file_key                    INTEGER NOT NULL,
    size                        INTEGER NOT NULL,
    modification_time           INTEGER NOT NULL,
    num_records                 INTEGER,
    path                        TEXT NOT NULL,
    stats                       TEXT,
    partition_values            TEXT NOT NULL,
    deletion_vector             TEXT,
    tags                        TEXT,
    base_row_id                 INTEGER,
    default_row_commit_version  INTEGER,
    clustering_provider         TEXT,
    PRIMARY KEY (table_id, file_id)
) STRICT, WITHOUT ROWID;

INSERT INTO files (table_id, file_id, added_version, file_key, size, modification_time, num_records, path, stats,
    partition_values, deletion_vector, tags, base_row_id, default_row_commit_version, clustering_provider)
SELECT table_id, file_id, added_version, file_key, size, modification_time, num_records, path, stats,
    partition_values, deletion_vector, tags, base_row_id, default_row_commit_version, clustering_provider
FROM files_before ORDER BY table_id, file_id;

DROP TABLE files_before;
CREATE INDEX files_by_key ON files (table_id, file_key);
