-- The ledger on DuckDB. A version of a table is ratified when its row in `commits` exists.
-- 9223372036854775807 in tombstone_until means: it has not ended.

CREATE TABLE schema_versions (
    version     BIGINT PRIMARY KEY,
    name        TEXT NOT NULL,
    applied_at  BIGINT NOT NULL,
    applied_by  TEXT NOT NULL
);

CREATE SEQUENCE table_ids;
CREATE TABLE tables (
    table_id            BIGINT PRIMARY KEY DEFAULT nextval('table_ids'),
    location            TEXT NOT NULL UNIQUE,
    name                TEXT UNIQUE,
    state               TEXT NOT NULL CHECK (state IN ('adopting', 'managed', 'frozen')),
    frozen_reason       TEXT,
    foreign_commits     TEXT NOT NULL CHECK (foreign_commits IN ('import', 'refuse')),
    allowed_paths       TEXT NOT NULL,
    base_version        BIGINT NOT NULL,
    head_version        BIGINT NOT NULL,
    published_version   BIGINT NOT NULL,
    checkpoint_version  BIGINT NOT NULL,
    next_file_id        BIGINT NOT NULL,
    managed_since       BIGINT NOT NULL
);

-- One row for every attempt to commit that reached COMMIT, over one table or many. 'abandoned' is written by whoever finds
-- out that a transaction of unknown outcome did not take place: the primary key lets only one of the two stories be told.
CREATE TABLE transactions (
    transaction_id  TEXT PRIMARY KEY,
    state           TEXT NOT NULL CHECK (state IN ('committed', 'abandoned')),
    author          TEXT,
    message         TEXT,
    origin          TEXT NOT NULL,
    committed_at    BIGINT NOT NULL,
    table_count     BIGINT NOT NULL
);

CREATE TABLE commits (
    table_id          BIGINT NOT NULL,
    version           BIGINT NOT NULL,
    transaction_id    TEXT,
    source            TEXT NOT NULL CHECK (source IN ('ledger', 'adopted', 'foreign')),
    content           BLOB NOT NULL,
    content_size      BIGINT NOT NULL,
    sha256            TEXT NOT NULL,
    operation         TEXT,
    engine            TEXT,
    blind_append      BIGINT NOT NULL,
    facts             TEXT NOT NULL,
    committed_at      BIGINT NOT NULL,
    commit_timestamp  BIGINT NOT NULL,
    num_files         BIGINT,
    size_bytes        BIGINT,
    num_vectors       BIGINT,
    PRIMARY KEY (table_id, version)
);

CREATE TABLE publications (
    table_id         BIGINT NOT NULL,
    version          BIGINT NOT NULL,
    published_at     BIGINT,
    attempts         BIGINT NOT NULL,
    last_error       TEXT,
    next_attempt_at  BIGINT NOT NULL,
    PRIMARY KEY (table_id, version)
);

CREATE TABLE protocols (
    table_id  BIGINT NOT NULL,
    version   BIGINT NOT NULL,
    content   TEXT NOT NULL,
    PRIMARY KEY (table_id, version)
);

CREATE TABLE metadata (
    table_id  BIGINT NOT NULL,
    version   BIGINT NOT NULL,
    content   TEXT NOT NULL,
    PRIMARY KEY (table_id, version)
);

CREATE TABLE app_transactions (
    table_id      BIGINT NOT NULL,
    app_id        TEXT NOT NULL,
    version       BIGINT NOT NULL,
    app_version   BIGINT NOT NULL,
    last_updated  BIGINT,
    PRIMARY KEY (table_id, app_id, version)
);

CREATE TABLE domains (
    table_id       BIGINT NOT NULL,
    domain         TEXT NOT NULL,
    version        BIGINT NOT NULL,
    configuration  TEXT NOT NULL,
    removed        BIGINT NOT NULL,
    PRIMARY KEY (table_id, domain, version)
);

-- No keys on the three wide tables: DuckDB's zone maps find the rows, and its indexes would slow every bulk load.
-- A row never changes. Active at version v: added_version <= v, and not in `removals` with removed_version <= v.
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

-- The files that went: a tombstone is visible from removed_version up to, not including, tombstone_until.
CREATE TABLE removals (
    table_id            BIGINT NOT NULL,
    file_id             BIGINT NOT NULL,
    removed_version     BIGINT NOT NULL,
    tombstone_until     BIGINT NOT NULL,
    deletion_timestamp  BIGINT,
    removal             TEXT
);

-- A second form of long stretches of files, [first_file, beyond_file), for reading many at once: compressed Arrow with what
-- is in the rows of `files`. It can be made again at any time; whatever takes rows out of `files` takes packs out.
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

CREATE TABLE pruning_columns (
    table_id       BIGINT NOT NULL,
    column_id      BIGINT NOT NULL,
    since_version  BIGINT NOT NULL,
    definition     TEXT NOT NULL,
    PRIMARY KEY (table_id, column_id)
);

-- An interval [lo, hi] of order-preserving keys for every file and pruning column.
CREATE TABLE file_bounds (
    table_id     BIGINT NOT NULL,
    column_id    BIGINT NOT NULL,
    width_class  BIGINT NOT NULL,
    lo           BIGINT NOT NULL,
    file_id      BIGINT NOT NULL,
    hi           BIGINT NOT NULL
);

-- Places where transactions that have not ended make new tables: nobody else would know what a dead one left there.
CREATE TABLE creations (
    transaction_id  TEXT NOT NULL,
    location        TEXT NOT NULL,
    begun_at        BIGINT NOT NULL,
    PRIMARY KEY (transaction_id, location)
);

-- Who does what right now, such as reconciling a table. Expired leases may be taken by anybody.
CREATE TABLE leases (
    name        TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    expires_at  BIGINT NOT NULL
);

CREATE SEQUENCE audit_ids;
CREATE TABLE audit (
    audit_id     BIGINT PRIMARY KEY DEFAULT nextval('audit_ids'),
    happened_at  BIGINT NOT NULL,
    action       TEXT NOT NULL,
    location     TEXT,
    author       TEXT,
    origin       TEXT NOT NULL,
    detail       TEXT
);

-- Tables whose newest version is ratified, with its bytes, and lacks the rows of its files and the sums over them: it has very
-- many, and they are written right behind it.
CREATE VIEW bare_heads AS
SELECT t.table_id, c.version FROM tables t JOIN commits c ON c.table_id = t.table_id AND c.version = t.head_version
WHERE t.state <> 'adopting' AND c.num_files IS NULL;
