-- Removes the ledger. The published logs are not touched.

DROP TABLE files;
DROP TABLE domains;
DROP TABLE app_transactions;
DROP TABLE metadata;
DROP TABLE protocols;
DROP TABLE publications;
DROP TABLE commits;
DROP TABLE transactions;
DROP TABLE tables;
DROP TABLE schema_versions;
