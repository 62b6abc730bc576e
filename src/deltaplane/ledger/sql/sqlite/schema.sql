-- The ledger on SQLite. A version of a table is ratified when its row in `commits` exists.
-- 9223372036854775807 in tombstone_until means: it has not ended.

CREATE TABLE schema_versions (
    version     INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    applied_at  INTEGER NOT NULL,
    applied_by  TEXT NOT NULL
) STRICT;

CREATE TABLE tables (
    table_id            INTEGER PRIMARY KEY AUTOINCREMENT,
    location            TEXT NOT NULL UNIQUE,
    name                TEXT UNIQUE,
    state               TEXT NOT NULL CHECK (state IN ('adopting', 'managed', 'frozen')),
    frozen_reason       TEXT,
    foreign_commits     TEXT NOT NULL CHECK (foreign_commits IN ('import', 'refuse')),
    allowed_paths       TEXT NOT NULL,
    base_version        INTEGER NOT NULL,
    head_version        INTEGER NOT NULL,
    published_version   INTEGER NOT NULL,
    checkpoint_version  INTEGER NOT NULL,
    next_file_id        INTEGER NOT NULL,
    managed_since       INTEGER NOT NULL
) STRICT;

-- One row for every attempt to commit that reached COMMIT, over one table or many. 'abandoned' is written by whoever finds
-- out that a transaction of unknown outcome did not take place: the primary key lets only one of the two stories be told.
CREATE TABLE transactions (
    transaction_id  TEXT PRIMARY KEY,
    state           TEXT NOT NULL CHECK (state IN ('committed', 'abandoned')),
    author          TEXT,
    message         TEXT,
    origin          TEXT NOT NULL,
    committed_at    INTEGER NOT NULL,
    table_count     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE commits (
    table_id          INTEGER NOT NULL REFERENCES tables (table_id),
    version           INTEGER NOT NULL,
    transaction_id    TEXT REFERENCES transactions (transaction_id),
    source            TEXT NOT NULL CHECK (source IN ('ledger', 'adopted', 'foreign')),
    content           BLOB NOT NULL,
    content_size      INTEGER NOT NULL,
    sha256            TEXT NOT NULL,
    operation         TEXT,
    engine            TEXT,
    blind_append      INTEGER NOT NULL,
    facts             TEXT NOT NULL,
    committed_at      INTEGER NOT NULL,
    commit_timestamp  INTEGER NOT NULL,
    num_files         INTEGER,
    size_bytes        INTEGER,
    num_vectors       INTEGER,
    PRIMARY KEY (table_id, version)
) STRICT;
CREATE INDEX commits_by_transaction ON commits (transaction_id);
CREATE INDEX commits_by_time ON commits (table_id, commit_timestamp);

CREATE TABLE publications (
    table_id         INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    published_at     INTEGER,
    attempts         INTEGER NOT NULL,
    last_error       TEXT,
    next_attempt_at  INTEGER NOT NULL,
    PRIMARY KEY (table_id, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX publications_pending ON publications (table_id, version) WHERE published_at IS NULL;

CREATE TABLE protocols (
    table_id  INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    content   TEXT NOT NULL,
    PRIMARY KEY (table_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE metadata (
    table_id  INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    content   TEXT NOT NULL,
    PRIMARY KEY (table_id, version)
) STRICT;

CREATE TABLE app_transactions (
    table_id      INTEGER NOT NULL,
    app_id        TEXT NOT NULL,
    version       INTEGER NOT NULL,
    app_version   INTEGER NOT NULL,
    last_updated  INTEGER,
    PRIMARY KEY (table_id, app_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE domains (
    table_id       INTEGER NOT NULL,
    domain         TEXT NOT NULL,
    version        INTEGER NOT NULL,
    configuration  TEXT NOT NULL,
    removed        INTEGER NOT NULL,
    PRIMARY KEY (table_id, domain, version)
) STRICT, WITHOUT ROWID;

-- A row never changes. Active at version v: added_version <= v, and not in `removals` with removed_version <= v.
-- Clustered by table, so that opening one table reads only its own pages.
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
CREATE INDEX files_by_key ON files (table_id, file_key);

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

-- A second form of long stretches of files, [first_file, beyond_file), for reading many at once: compressed Arrow with what
-- is in the rows of `files`. It can be made again at any time; whatever takes rows out of `files` takes packs out.
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

-- Places where transactions that have not ended make new tables: nobody else would know what a dead one left there.
CREATE TABLE creations (
    transaction_id  TEXT NOT NULL,
    location        TEXT NOT NULL,
    begun_at        INTEGER NOT NULL,
    PRIMARY KEY (transaction_id, location)
) STRICT;

-- Who does what right now, such as reconciling a table. Expired leases may be taken by anybody.
CREATE TABLE leases (
    name        TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    audit_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    happened_at  INTEGER NOT NULL,
    action       TEXT NOT NULL,
    location     TEXT,
    author       TEXT,
    origin       TEXT NOT NULL,
    detail       TEXT
) STRICT;

-- Tables whose newest version is ratified, with its bytes, and lacks the rows of its files and the sums over them: it has very
-- many, and they are written right behind it.
CREATE VIEW bare_heads AS
SELECT t.table_id, c.version FROM tables t JOIN commits c ON c.table_id = t.table_id AND c.version = t.head_version
WHERE t.state <> 'adopting' AND c.num_files IS NULL;
