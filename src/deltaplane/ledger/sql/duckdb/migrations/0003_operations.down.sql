-- The audit trail is lost: export it first.

DROP TABLE audit;
DROP SEQUENCE audit_ids;
DROP TABLE leases;
