-- Leases of reconcilers and the audit trail.

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
