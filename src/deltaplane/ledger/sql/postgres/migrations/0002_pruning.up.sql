-- Typed, indexed statistics.

CREATE TABLE pruning_columns (
    table_id       BIGINT NOT NULL,
    column_id      BIGINT NOT NULL,
    since_version  BIGINT NOT NULL,
    definition     TEXT NOT NULL,
    PRIMARY KEY (table_id, column_id)
);

-- An interval [lo, hi] of order-preserving keys for every file and pruning column. Intervals of one width class are found by
-- a range of lo alone, so that an ordinary index answers "which intervals contain x".
CREATE TABLE file_bounds (
    table_id     BIGINT NOT NULL,
    column_id    BIGINT NOT NULL,
    width_class  BIGINT NOT NULL,
    lo           BIGINT NOT NULL,
    file_id      BIGINT NOT NULL,
    hi           BIGINT NOT NULL,
    PRIMARY KEY (table_id, column_id, width_class, lo, file_id)
);
