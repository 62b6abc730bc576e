-- Nothing is lost: packs are made from the rows of `files`.

DROP TABLE file_packs;
