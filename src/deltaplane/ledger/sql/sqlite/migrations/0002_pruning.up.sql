-- Typed, indexed statistics.

CREATE TABLE pruning_columns (
    table_id       INTEGER NOT NULL,
    column_id      INTEGER NOT NULL,
    since_version  INTEGER NOT NULL,
    definition     TEXT NOT NULL,
    PRIMARY KEY (table_id, column_id)
) STRICT, WITHOUT ROWID;

-- An interval [lo, hi] of order-preserving keys for every file and pruning column. Intervals of one width class are found by
-- a range of lo alone, so that an ordinary index answers "which intervals contain x".
CREATE TABLE file_bounds (
    table_id     INTEGER NOT NULL,
    column_id    INTEGER NOT NULL,
    width_class  INTEGER NOT NULL,
    lo           INTEGER NOT NULL,
    file_id      INTEGER NOT NULL,
    hi           INTEGER NOT NULL,
    PRIMARY KEY (table_id, column_id, width_class, lo, file_id)
) STRICT, WITHOUT ROWID;
