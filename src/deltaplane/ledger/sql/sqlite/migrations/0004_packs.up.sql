-- Packs of files, for reading many at once.

-- A second form of long stretches of files, [first_file, beyond_file), for reading many at once: compressed Arrow with what
-- never changes in a row of `files`. It can be made again at any time; whatever takes rows out of `files` takes packs out.
CREATE TABLE file_packs (
    table_id     INTEGER NOT NULL,
    first_file   INTEGER NOT NULL,
    beyond_file  INTEGER NOT NULL,
    first_added  INTEGER NOT NULL,
    last_added   INTEGER NOT NULL,
    num_rows     INTEGER NOT NULL,
    content      BLOB NOT NULL,
    PRIMARY KEY (table_id, first_file)
) STRICT;

-- The files that went, by their ids: what a pack must be rid of.
CREATE INDEX files_gone ON files (table_id, file_id, removed_version) WHERE removed_version < 9223372036854775807;
