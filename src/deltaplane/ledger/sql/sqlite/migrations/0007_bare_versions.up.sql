-- Large versions are ratified before the rows of their files are written. Clients from before would take such a version for empty.

-- Tables whose newest version is ratified, with its bytes, and lacks the rows of its files and the sums over them: it has very
-- many, and they are written right behind it.
CREATE VIEW bare_heads AS
SELECT t.table_id, c.version FROM tables t JOIN commits c ON c.table_id = t.table_id AND c.version = t.head_version
WHERE t.state <> 'adopting' AND c.num_files IS NULL;
