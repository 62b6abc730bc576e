-- The audit trail is lost: export it first.

DROP TABLE audit;
DROP TABLE leases;
