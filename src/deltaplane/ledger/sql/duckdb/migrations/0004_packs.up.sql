-- Packs of files, for reading many at once.

-- A second form of long stretches of files, [first_file, beyond_file), for reading many at once: compressed Arrow with what
-- never changes in a row of `files`. It can be made again at any time; whatever takes rows out of `files` takes packs out.
CREATE TABLE file_packs (
    table_id     BIGINT NOT NULL,
    first_file   BIGINT NOT NULL,
    beyond_file  BIGINT NOT NULL,
    first_added  BIGINT NOT NULL,
    last_added   BIGINT NOT NULL,
    num_rows     BIGINT NOT NULL,
    content      BLOB NOT NULL,
    PRIMARY KEY (table_id, first_file)
);
