-- Leases of reconcilers and the audit trail.

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
