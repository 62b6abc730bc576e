-- Tables that open transactions are about to make.

-- Places where transactions that have not ended make new tables: nobody else would know what a dead one left there.
CREATE TABLE creations (
    transaction_id  TEXT NOT NULL,
    location        TEXT NOT NULL,
    begun_at        BIGINT NOT NULL,
    PRIMARY KEY (transaction_id, location)
);
