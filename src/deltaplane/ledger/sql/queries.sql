-- Statements of the ledger, for every database. Values are named :like_this. What differs is in <engine>/queries.sql, which wins.

-- name: schema_version
-- The newest migration that has been applied.
SELECT max(version) FROM schema_versions

-- name: record_schema_version
INSERT INTO schema_versions (version, name, applied_at, applied_by) VALUES (:version, :name, :now, :by)

-- name: forget_schema_version
DELETE FROM schema_versions WHERE version = :version

-- name: table_by_location
SELECT {table_columns} FROM tables WHERE location = :location

-- name: table_by_reference
-- A name wins over a place.
SELECT {table_columns} FROM tables WHERE name = :name OR location = :location
ORDER BY CASE WHEN name = :name THEN 0 ELSE 1 END LIMIT 1

-- name: tables_of_name
-- Spark does not tell upper case from lower case. What is spelled in full wins.
SELECT {table_columns} FROM tables WHERE state <> 'adopting' AND lower(name) IN (:qualified, :full, :short)
ORDER BY CASE lower(name) WHEN :qualified THEN 0 WHEN :full THEN 1 ELSE 2 END, name

-- name: table_names
SELECT name FROM tables WHERE name IS NOT NULL AND state <> 'adopting' ORDER BY name

-- name: table_by_id
SELECT {table_columns} FROM tables WHERE table_id = :table_id

-- name: all_tables
SELECT {table_columns} FROM tables ORDER BY location

-- name: insert_table
INSERT INTO tables (location, name, state, foreign_commits, allowed_paths, base_version, head_version, published_version,
    checkpoint_version, next_file_id, managed_since)
VALUES (:location, :name, :state, :foreign_commits, :allowed_paths, -1, -1, -1, -1, 0, :now)
ON CONFLICT DO NOTHING
RETURNING table_id

-- name: advance_head
UPDATE tables SET head_version = :version, next_file_id = :next_file_id WHERE table_id = :table_id

-- name: set_base
UPDATE tables SET base_version = :version WHERE table_id = :table_id

-- name: renew_adoption
UPDATE tables SET name = coalesce(:name, name), foreign_commits = :foreign_commits, allowed_paths = :allowed_paths
WHERE table_id = :table_id AND state = 'adopting'

-- name: finish_adoption
UPDATE tables SET state = 'managed', base_version = :base, head_version = :head, published_version = :head,
    checkpoint_version = :checkpoint, next_file_id = :next_file_id WHERE table_id = :table_id

-- name: mark_published
-- Never backwards: two publishers may finish in either order.
UPDATE tables SET published_version = :version WHERE table_id = :table_id AND published_version < :version

-- name: set_published
UPDATE tables SET published_version = :version WHERE table_id = :table_id

-- name: mark_checkpoint
UPDATE tables SET checkpoint_version = :version WHERE table_id = :table_id AND checkpoint_version < :version

-- name: freeze
UPDATE tables SET state = 'frozen', frozen_reason = :reason WHERE table_id = :table_id

-- name: thaw
UPDATE tables SET state = 'managed', frozen_reason = NULL WHERE table_id = :table_id

-- name: set_policy
UPDATE tables SET foreign_commits = :foreign_commits WHERE table_id = :table_id

-- name: set_name
UPDATE tables SET name = :name WHERE table_id = :table_id

-- name: insert_transaction
INSERT INTO transactions (transaction_id, state, author, message, origin, committed_at, table_count)
VALUES (:transaction_id, :state, :author, :message, :origin, :now, :table_count)
ON CONFLICT (transaction_id) DO NOTHING
RETURNING transaction_id

-- name: transaction_by_id
SELECT transaction_id, state, author, message, origin, committed_at, table_count
FROM transactions WHERE transaction_id = :transaction_id

-- name: commits_of_transaction
SELECT t.location, t.name, c.version FROM commits c JOIN tables t ON t.table_id = c.table_id
WHERE c.transaction_id = :transaction_id ORDER BY t.location, c.version

-- name: insert_commit
INSERT INTO commits (table_id, version, transaction_id, source, content, content_size, sha256, operation, engine, blind_append,
    facts, committed_at, commit_timestamp, num_files, size_bytes, num_vectors)
VALUES (:table_id, :version, :transaction_id, :source, :content, :content_size, :sha256, :operation, :engine, :blind_append,
    :facts, :committed_at, :commit_timestamp, :num_files, :size_bytes, :num_vectors)

-- name: insert_publication
INSERT INTO publications (table_id, version, published_at, attempts, last_error, next_attempt_at)
VALUES (:table_id, :version, :published_at, 0, NULL, 0)

-- name: commit_totals
SELECT version, num_files, size_bytes, num_vectors, commit_timestamp
FROM commits WHERE table_id = :table_id AND version = :version

-- name: bare_head
-- The newest version of a table, where the rows of its files are still to be written.
-- As the view bare_heads tells it, found by its key, see `gone_one`.
SELECT t.head_version FROM tables t WHERE t.table_id = :table_id AND t.state <> 'adopting' AND EXISTS (SELECT 1 FROM commits c
    WHERE c.table_id = t.table_id + 0 AND c.version = t.head_version AND c.num_files IS NULL)

-- name: set_totals
UPDATE commits SET num_files = :num_files, size_bytes = :size_bytes, num_vectors = :num_vectors
WHERE table_id = :table_id AND version = :version

-- name: head_state
-- What the next commit builds on, in one round trip.
SELECT c.num_files, c.size_bytes, c.num_vectors, c.commit_timestamp,
    (SELECT m.content FROM metadata m WHERE m.table_id = c.table_id ORDER BY m.version DESC LIMIT 1),
    (SELECT p.content FROM protocols p WHERE p.table_id = c.table_id ORDER BY p.version DESC LIMIT 1),
    (SELECT {column_list} FROM pruning_columns i WHERE i.table_id = c.table_id)
FROM tables t JOIN commits c ON c.table_id = t.table_id + 0 AND c.version = t.head_version WHERE t.table_id = :table_id

-- name: winners
SELECT c.version, c.operation, c.engine, c.facts, c.committed_at, c.source, x.author, x.message
FROM commits c LEFT JOIN transactions x ON x.transaction_id = c.transaction_id
WHERE c.table_id = :table_id AND c.version > :version ORDER BY c.version

-- name: sources_since
SELECT version, source, commit_timestamp FROM commits WHERE table_id = :table_id AND version > :version ORDER BY version

-- name: content
SELECT content, content_size, sha256 FROM commits WHERE table_id = :table_id AND version = :version

-- name: contents
SELECT version, content, content_size, sha256 FROM commits
WHERE table_id = :table_id AND version BETWEEN :first AND :last ORDER BY version

-- name: commit_hashes
SELECT version, sha256, content_size FROM commits WHERE table_id = :table_id AND version >= :first ORDER BY version

-- name: versions_at_moment
-- Commits of one transaction count at one moment, whenever each of them was written.
SELECT c.table_id, max(c.version) FROM commits c LEFT JOIN transactions x ON x.transaction_id = c.transaction_id
WHERE coalesce(x.committed_at, c.commit_timestamp) <= :moment
    AND (c.num_files IS NOT NULL OR EXISTS (SELECT 1 FROM bare_heads b WHERE b.table_id = c.table_id AND b.version = c.version))
GROUP BY c.table_id

-- name: groups_after_moment
SELECT x.transaction_id, c.table_id, c.version FROM transactions x JOIN commits c ON c.transaction_id = x.transaction_id
WHERE x.table_count > 1 AND x.committed_at > :moment AND x.committed_at <= :moment + 86400000

-- name: version_at
-- Versions of which only the commit is known have no state.
SELECT max(version) FROM commits
WHERE table_id = :table_id AND commit_timestamp <= :timestamp
    AND (num_files IS NOT NULL OR version IN (SELECT b.version FROM bare_heads b WHERE b.table_id = :table_id))

-- name: time_range
SELECT min(commit_timestamp), max(commit_timestamp) FROM commits
WHERE table_id = :table_id AND version >= (SELECT base_version FROM tables WHERE table_id = :table_id)

-- name: history
SELECT c.version, c.transaction_id, c.source, c.operation, c.engine, c.facts, c.committed_at, c.commit_timestamp, c.num_files,
    c.size_bytes, c.sha256, x.author, x.message, x.origin, x.table_count, p.published_at
FROM commits c
LEFT JOIN transactions x ON x.transaction_id = c.transaction_id
LEFT JOIN publications p ON p.table_id = c.table_id + 0 AND p.version = c.version
WHERE c.table_id = :table_id ORDER BY c.version DESC LIMIT :limit

-- name: pending
SELECT p.version, p.attempts, p.last_error, p.next_attempt_at, c.committed_at
FROM publications p JOIN commits c ON c.table_id = p.table_id + 0 AND c.version = p.version
WHERE p.table_id = :table_id AND p.published_at IS NULL ORDER BY p.version LIMIT :limit

-- name: record_published
UPDATE publications SET published_at = :now, last_error = NULL
WHERE table_id = :table_id AND version BETWEEN :first AND :last AND published_at IS NULL

-- name: record_failure
UPDATE publications SET attempts = attempts + 1, last_error = :error, next_attempt_at = :next_attempt_at
WHERE table_id = :table_id AND version = :version

-- name: lag
SELECT t.table_id, t.location, t.name, t.state, t.frozen_reason, t.head_version, t.published_version, t.checkpoint_version,
    min(c.committed_at), max(p.attempts), max(p.last_error), count(p.version)
FROM tables t
LEFT JOIN publications p ON p.table_id = t.table_id AND p.published_at IS NULL
LEFT JOIN commits c ON c.table_id = p.table_id AND c.version = p.version
GROUP BY t.table_id, t.location, t.name, t.state, t.frozen_reason, t.head_version, t.published_version, t.checkpoint_version
ORDER BY t.location

-- name: insert_protocol
INSERT INTO protocols (table_id, version, content) VALUES (:table_id, :version, :content)

-- name: protocol_at
SELECT content FROM protocols WHERE table_id = :table_id AND version <= :version ORDER BY version DESC LIMIT 1

-- name: insert_metadata
INSERT INTO metadata (table_id, version, content) VALUES (:table_id, :version, :content)

-- name: metadata_at
SELECT content FROM metadata WHERE table_id = :table_id AND version <= :version ORDER BY version DESC LIMIT 1

-- name: insert_app_transaction
INSERT INTO app_transactions (table_id, app_id, version, app_version, last_updated)
VALUES (:table_id, :app_id, :version, :app_version, :last_updated)

-- name: app_transactions_at
SELECT a.app_id, a.app_version, a.last_updated FROM app_transactions a
WHERE a.table_id = :table_id AND a.version = (SELECT max(b.version) FROM app_transactions b
    WHERE b.table_id = a.table_id AND b.app_id = a.app_id AND b.version <= :version)
ORDER BY a.app_id

-- name: insert_domain
INSERT INTO domains (table_id, domain, version, configuration, removed)
VALUES (:table_id, :domain, :version, :configuration, :removed)

-- name: domains_at
SELECT d.domain, d.configuration FROM domains d
WHERE d.table_id = :table_id AND d.removed = 0 AND d.version = (SELECT max(e.version) FROM domains e
    WHERE e.table_id = d.table_id AND e.domain = d.domain AND e.version <= :version)
ORDER BY d.domain

-- name: files_by_key
-- Everything that is or was known under these keys.
SELECT file_id, path, deletion_vector, size FROM files WHERE table_id = :table_id AND file_key {among}

-- name: removals_of
-- Which files went, and until which version there is a tombstone.
SELECT file_id, tombstone_until FROM removals WHERE table_id = :table_id AND file_id {among}

-- name: gone
-- A part of statements about all files of a table: whether one is not active any more.
EXISTS (SELECT 1 FROM removals r WHERE r.table_id = f.table_id AND r.file_id = f.file_id AND r.removed_version <= :version)

-- name: gone_one
-- The same where files are looked at one by one. The sum keeps a planner from taking both sides for the same constant: of a
-- table that its statistics do not know it would read all rows for each file, because it believes that there are none.
EXISTS (SELECT 1 FROM removals r WHERE r.table_id = f.table_id + 0 AND r.file_id = f.file_id AND r.removed_version <= :version)

-- name: end_tombstones
UPDATE removals SET tombstone_until = :version WHERE table_id = :table_id AND file_id {among}

-- name: files_narrow
-- What most readers ask for; other columns cost time per million rows, so they are left out where a table has none.
SELECT path, size, modification_time, {optional} coalesce(num_records, -1) AS num_records, coalesce(stats, '') AS stats
FROM files f WHERE f.table_id = :table_id AND f.added_version <= :version AND NOT {gone}

-- name: files_between
-- The same for a part of the files.
SELECT path, size, modification_time, {optional} coalesce(num_records, -1) AS num_records, coalesce(stats, '') AS stats
FROM files f WHERE f.table_id = :table_id AND f.file_id >= :first_file AND f.file_id < :beyond_file
    AND f.added_version <= :version AND NOT EXISTS (SELECT 1 FROM removals r WHERE r.table_id = f.table_id
        AND r.file_id = f.file_id AND r.file_id >= :first_file AND r.file_id < :beyond_file AND r.removed_version <= :version)

-- name: pack_ranges
SELECT first_file, beyond_file, first_added, last_added, num_rows FROM file_packs
WHERE table_id = :table_id ORDER BY first_file

-- name: pack_contents
SELECT first_file, beyond_file, first_added, last_added, num_rows, content FROM file_packs
WHERE table_id = :table_id AND first_added <= :version ORDER BY first_file

-- name: gone_files
-- Which files of a stretch are not active any more at a version.
SELECT file_id FROM removals WHERE table_id = :table_id AND file_id >= :first_file AND file_id < :beyond_file
    AND removed_version <= :version

-- name: gone_counts
-- How many files went, for every so many ids.
SELECT file_id / :width, count(*) FROM removals WHERE table_id = :table_id GROUP BY 1

-- name: pack_rows
-- What goes into a pack: all that were ever in the stretch, gone or not.
SELECT file_id, added_version, path, size, modification_time, partition_values,
    coalesce(deletion_vector, '') AS deletion_vector, coalesce(num_records, -1) AS num_records, coalesce(stats, '') AS stats
FROM files WHERE table_id = :table_id AND file_id >= :first_file AND file_id < :beyond_file
ORDER BY file_id

-- name: stretch_totals
SELECT count(*), coalesce(sum(size), 0) FROM files
WHERE table_id = :table_id AND file_id >= :first_file AND file_id < :beyond_file

-- name: insert_pack
-- Two may pack the same stretch at once; what they make of it is the same.
INSERT INTO file_packs (table_id, first_file, beyond_file, first_added, last_added, num_rows, content)
VALUES (:table_id, :first_file, :beyond_file, :first_added, :last_added, :num_rows, :content)
ON CONFLICT DO NOTHING

-- name: delete_pack
DELETE FROM file_packs WHERE table_id = :table_id AND first_file = :first_file

-- name: delete_packs
DELETE FROM file_packs WHERE table_id = :table_id

-- name: files_full
-- What a checkpoint holds, in an order of its own so that the same state gives the same bytes.
SELECT path, partition_values, size, modification_time, coalesce(stats, '') AS stats, coalesce(tags, '') AS tags,
    coalesce(deletion_vector, '') AS deletion_vector, coalesce(base_row_id, -1) AS base_row_id,
    coalesce(default_row_commit_version, -1) AS default_row_commit_version,
    coalesce(clustering_provider, '') AS clustering_provider
FROM files f WHERE f.table_id = :table_id AND f.added_version <= :version AND NOT {gone}
ORDER BY path, deletion_vector

-- name: tombstones_full
SELECT f.path, f.partition_values, f.size, coalesce(f.tags, '') AS tags, coalesce(f.deletion_vector, '') AS deletion_vector,
    coalesce(f.base_row_id, -1) AS base_row_id, coalesce(f.default_row_commit_version, -1) AS default_row_commit_version,
    coalesce(r.deletion_timestamp, -1) AS deletion_timestamp, coalesce(r.removal, '') AS removal
FROM removals r JOIN files f ON f.table_id = r.table_id AND f.file_id = r.file_id
WHERE r.table_id = :table_id AND r.removed_version <= :version AND r.tombstone_until > :version
    AND coalesce(r.deletion_timestamp, 0) > :expired_before
ORDER BY path, deletion_vector

-- name: count_files
SELECT count(*), coalesce(sum(size), 0), count(deletion_vector), count(num_records), coalesce(sum(num_records), 0) FROM files f
WHERE f.table_id = :table_id AND f.added_version <= :version AND NOT {gone_one}

-- name: files_by_id
SELECT path, size, modification_time, partition_values, coalesce(deletion_vector, '') AS deletion_vector,
    coalesce(num_records, -1) AS num_records, coalesce(stats, '') AS stats
FROM files f WHERE f.table_id = :table_id AND f.added_version <= :version AND f.file_id {among} AND NOT {gone_one}

-- name: files_before
SELECT file_id FROM files f
WHERE f.table_id = :table_id AND f.added_version < :since AND f.added_version <= :version AND NOT {gone_one}
LIMIT :limit

-- name: insert_pruning_column
INSERT INTO pruning_columns (table_id, column_id, since_version, definition)
VALUES (:table_id, :column_id, :since_version, :definition)

-- name: pruning_columns
SELECT column_id, since_version, definition FROM pruning_columns WHERE table_id = :table_id ORDER BY column_id

-- name: take_lease
INSERT INTO leases (name, holder, expires_at) VALUES (:name, :holder, :expires_at)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE leases.holder = excluded.holder OR leases.expires_at < :now
RETURNING holder

-- name: drop_lease
DELETE FROM leases WHERE name = :name AND holder = :holder

-- name: expire_leases
DELETE FROM leases WHERE expires_at < :now

-- name: insert_audit
INSERT INTO audit (happened_at, action, location, author, origin, detail)
VALUES (:now, :action, :location, :author, :origin, :detail)

-- name: audit_trail
SELECT happened_at, action, location, author, origin, detail FROM audit ORDER BY audit_id DESC LIMIT :limit

-- name: delete_table
DELETE FROM tables WHERE table_id = :table_id

-- name: delete_commits
DELETE FROM commits WHERE table_id = :table_id AND version >= :version

-- name: delete_publications
DELETE FROM publications WHERE table_id = :table_id AND version >= :version

-- name: delete_protocols
DELETE FROM protocols WHERE table_id = :table_id AND version >= :version

-- name: delete_metadata
DELETE FROM metadata WHERE table_id = :table_id AND version >= :version

-- name: delete_app_transactions
DELETE FROM app_transactions WHERE table_id = :table_id AND version >= :version

-- name: delete_domains
DELETE FROM domains WHERE table_id = :table_id AND version >= :version

-- name: delete_bounds
-- Those of files that have been deleted.
DELETE FROM file_bounds WHERE table_id = :table_id AND NOT EXISTS (SELECT 1 FROM files f
    WHERE f.table_id = file_bounds.table_id + 0 AND f.file_id = file_bounds.file_id)

-- name: delete_files
DELETE FROM files WHERE table_id = :table_id AND added_version >= :version

-- name: delete_removals
-- What went with these versions is back again.
DELETE FROM removals WHERE table_id = :table_id AND removed_version >= :version

-- name: revive_tombstones
UPDATE removals SET tombstone_until = 9223372036854775807
WHERE table_id = :table_id AND tombstone_until >= :version AND tombstone_until < 9223372036854775807

-- name: delete_all_bounds
DELETE FROM file_bounds WHERE table_id = :table_id

-- name: delete_pruning_columns
DELETE FROM pruning_columns WHERE table_id = :table_id

-- name: publication
SELECT attempts, last_error, next_attempt_at, published_at FROM publications WHERE table_id = :table_id AND version = :version

-- name: reset_table
UPDATE tables SET base_version = -1, head_version = -1, published_version = -1, checkpoint_version = -1, next_file_id = 0
WHERE table_id = :table_id

-- name: file_keys
SELECT file_key FROM files f WHERE f.table_id = :table_id AND f.added_version <= :version AND NOT {gone}

-- name: files_for_bounds
-- Tombstones that were never seen as files have no intervals.
SELECT f.file_id, f.stats, f.partition_values FROM files f
WHERE f.table_id = :table_id AND f.file_id > :after AND NOT EXISTS (SELECT 1 FROM removals r
    WHERE r.table_id = f.table_id + 0 AND r.file_id = f.file_id AND r.removed_version <= f.added_version)
ORDER BY f.file_id LIMIT :limit

-- name: set_head
UPDATE tables SET head_version = :version WHERE table_id = :table_id

-- name: set_checkpoint
UPDATE tables SET checkpoint_version = :version WHERE table_id = :table_id

-- name: unpublish
UPDATE publications SET published_at = NULL, attempts = 0, last_error = NULL, next_attempt_at = 0
WHERE table_id = :table_id AND version >= :version

-- name: end_active_files
INSERT INTO removals (table_id, file_id, removed_version, tombstone_until)
SELECT f.table_id, f.file_id, CAST(:version AS BIGINT), CAST(:version AS BIGINT) FROM files f
WHERE f.table_id = :table_id AND NOT EXISTS (SELECT 1 FROM removals r
    WHERE r.table_id = f.table_id + 0 AND r.file_id = f.file_id)

-- name: end_all_tombstones
UPDATE removals SET tombstone_until = :version
WHERE table_id = :table_id AND removed_version < :version AND tombstone_until = 9223372036854775807

-- name: delete_protocol
DELETE FROM protocols WHERE table_id = :table_id AND version = :version

-- name: delete_metadata_of
DELETE FROM metadata WHERE table_id = :table_id AND version = :version

-- name: leases
-- For people who look into the ledger: who holds what.
SELECT name, holder, expires_at FROM leases ORDER BY name

-- name: delete_pruning_columns_since
DELETE FROM pruning_columns WHERE table_id = :table_id AND since_version >= :version

-- name: insert_creation
INSERT INTO creations (transaction_id, location, begun_at)
VALUES (:transaction_id, :location, :begun_at)
ON CONFLICT DO NOTHING

-- name: creations_before
SELECT transaction_id, location, begun_at FROM creations WHERE begun_at < :limit ORDER BY begun_at, location

-- name: delete_creation
DELETE FROM creations WHERE transaction_id = :transaction_id AND location = :location

-- name: delete_creations
DELETE FROM creations WHERE transaction_id = :transaction_id
