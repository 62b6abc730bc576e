-- Nothing is lost: packs are made from the rows of `files`.

DROP INDEX files_gone;
DROP TABLE file_packs;
