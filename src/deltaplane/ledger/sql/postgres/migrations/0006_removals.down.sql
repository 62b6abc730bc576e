-- Nothing is lost: what went is noted in the rows of `files` again.

-- A copy, and not the table under another name: its constraints would keep theirs.
CREATE TABLE files_before AS SELECT * FROM files;
DROP TABLE files;

CREATE TABLE files (
    table_id                    BIGINT NOT NULL,
    file_id                     BIGINT NOT NULL,
    added_version               BIGINT NOT NULL,
    removed_version             BIGINT NOT NULL,
    tombstone_until             BIGINT NOT NULL,
    file_key                    BIGINT NOT NULL,
    size                        BIGINT NOT NULL,
    modification_time           BIGINT NOT NULL,
    num_records                 BIGINT,
    path                        TEXT COLLATE "C" NOT NULL,
    stats                       TEXT,
    partition_values            TEXT NOT NULL,
    deletion_vector             TEXT COLLATE "C",
    tags                        TEXT,
    base_row_id                 BIGINT,
    default_row_commit_version  BIGINT,
    clustering_provider         TEXT,
    deletion_timestamp          BIGINT,
    removal                     TEXT,
    PRIMARY KEY (table_id, file_id)
);

INSERT INTO files (table_id, file_id, added_version, removed_version, tombstone_until, file_key, size, modification_time, num_records,
    path, stats, partition_values, deletion_vector, tags, base_row_id, default_row_commit_version, clustering_provider, deletion_timestamp, removal)
SELECT f.table_id, f.file_id, f.added_version, coalesce(r.removed_version, 9223372036854775807), coalesce(r.tombstone_until, 9223372036854775807),
    f.file_key, f.size, f.modification_time, f.num_records, f.path, f.stats, f.partition_values,
    f.deletion_vector, f.tags, f.base_row_id, f.default_row_commit_version, f.clustering_provider, r.deletion_timestamp, r.removal
FROM files_before f LEFT JOIN removals r ON r.table_id = f.table_id AND r.file_id = f.file_id
ORDER BY f.table_id, f.file_id;

DROP TABLE files_before;
DROP TABLE removals;
CREATE INDEX files_by_key ON files (table_id, file_key);
-- The files that went, by their ids: what a pack must be rid of.
CREATE INDEX files_gone ON files (table_id, file_id, removed_version) WHERE removed_version < 9223372036854775807;
