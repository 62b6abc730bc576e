-- Rows of `files` never change any more: what went is noted beside them. Many files go in one commit, and to write each of
-- their rows anew took several times as long.

-- The files that went: a tombstone is visible from removed_version up to, not including, tombstone_until.
CREATE TABLE removals (
    table_id            BIGINT NOT NULL,
    file_id             BIGINT NOT NULL,
    removed_version     BIGINT NOT NULL,
    tombstone_until     BIGINT NOT NULL,
    deletion_timestamp  BIGINT,
    removal             TEXT
);

INSERT INTO removals (table_id, file_id, removed_version, tombstone_until, deletion_timestamp, removal)
SELECT table_id, file_id, removed_version, tombstone_until, deletion_timestamp, removal
FROM files WHERE removed_version < 9223372036854775807;

ALTER TABLE files RENAME TO files_before;

CREATE TABLE files (
    table_id                    BIGINT NOT NULL,
    file_id                     BIGINT NOT NULL,
    added_version               BIGINT NOT NULL,
    file_key                    BIGINT NOT NULL,
    size                        BIGINT NOT NULL,
    modification_time           BIGINT NOT NULL,
    num_records                 BIGINT,
    path                        TEXT NOT NULL,
    stats                       TEXT,
    partition_values            TEXT NOT NULL,
    deletion_vector             TEXT,
    tags                        TEXT,
    base_row_id                 BIGINT,
    default_row_commit_version  BIGINT,
    clustering_provider         TEXT
);

INSERT INTO files (table_id, file_id, added_version, file_key, size, modification_time, num_records, path, stats,
    partition_values, deletion_vector, tags, base_row_id, default_row_commit_version, clustering_provider)
SELECT table_id, file_id, added_version, file_key, size, modification_time, num_records, path, stats,
    partition_values, deletion_vector, tags, base_row_id, default_row_commit_version, clustering_provider
FROM files_before ORDER BY table_id, file_id;

DROP TABLE files_before;
