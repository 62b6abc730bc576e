-- Four roles for a ledger on PostgreSQL, none of which can log in: grant them to the users who do.
--
--   deltaplane_reader      reads everything and changes nothing
--   deltaplane_reconciler  publishes what was ratified, writes checkpoints, imports commits of outside writers, freezes a
--                          table that diverged; neither brings tables in nor takes them out
--   deltaplane_writer      creates, adopts, commits, publishes, repairs and releases
--   deltaplane_owner       owns the ledger's tables and migrates them
--
-- Run it as a superuser, or as the owner of the database with CREATEROLE, with the ledger's schema first in search_path.
-- It may be run again at any time: before or after `deltaplane ledger init`, and after every migration. Rights of these
-- roles and of PUBLIC on the ledger's tables become what is written here; those of other roles are left alone.

DO $$
DECLARE
    wanted text;
BEGIN
    IF current_schema() IS NULL THEN
        RAISE EXCEPTION 'No schema of search_path exists. Nothing was changed. Set search_path to the schema of the ledger.';
    END IF;
    FOREACH wanted IN ARRAY ARRAY['deltaplane_reader', 'deltaplane_writer', 'deltaplane_reconciler', 'deltaplane_owner'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                -- Roles belong to the whole server: the script of another database was faster.
                RAISE NOTICE 'role % was created meanwhile', wanted;
            END;
        END IF;
    END LOOP;
    -- Who hands tables over to a role has to belong to it; a superuser does so anyway.
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT deltaplane_owner TO %I', current_user);
    END IF;
END
$$;

-- The schema: all may look in, only the owner makes things there.
DO $$
BEGIN
    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO deltaplane_reader, deltaplane_writer, deltaplane_reconciler', current_schema());
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO deltaplane_owner', current_schema());
END
$$;

-- What a later migration creates as deltaplane_owner can be used at once; running this script again narrows it.
DO $$
DECLARE
    defaults text := format('ALTER DEFAULT PRIVILEGES FOR ROLE deltaplane_owner IN SCHEMA %I ', current_schema());
BEGIN
    EXECUTE defaults || 'GRANT SELECT ON TABLES TO deltaplane_reader';
    EXECUTE defaults || 'GRANT SELECT, INSERT, UPDATE ON TABLES TO deltaplane_reconciler';
    EXECUTE defaults || 'GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO deltaplane_writer';
END
$$;

-- The tables, as far as they exist yet. Nobody but the owner changes what has been written to the audit trail, to the list
-- of transactions or to the list of migrations.
DO $$
DECLARE
    granted record;
    place text;
BEGIN
    FOR granted IN
        SELECT * FROM (VALUES
            ('schema_versions',  NULL,                             NULL),
            ('tables',           'INSERT, UPDATE, DELETE',         'UPDATE (state, frozen_reason, head_version, published_version, checkpoint_version, next_file_id)'),
            ('transactions',     'INSERT',                         'INSERT'),
            ('commits',          'INSERT, DELETE, UPDATE (num_files, size_bytes, num_vectors)', 'INSERT, UPDATE (num_files, size_bytes, num_vectors)'),
            ('bare_heads',       NULL,                             NULL),
            ('publications',     'INSERT, UPDATE, DELETE',         'INSERT, UPDATE'),
            ('protocols',        'INSERT, DELETE',                 'INSERT'),
            ('metadata',         'INSERT, DELETE',                 'INSERT'),
            ('app_transactions', 'INSERT, DELETE',                 'INSERT'),
            ('domains',          'INSERT, DELETE',                 'INSERT'),
            ('files',            'INSERT, DELETE',                 'INSERT'),
            ('removals',         'INSERT, UPDATE, DELETE',         'INSERT, UPDATE'),
            ('file_packs',       'INSERT, DELETE',                 'INSERT, DELETE'),
            ('pruning_columns',  'INSERT, DELETE',                 'INSERT'),
            ('file_bounds',      'INSERT, DELETE',                 'INSERT'),
            ('creations',        'INSERT, DELETE',                 'DELETE'),
            ('leases',           'INSERT, UPDATE, DELETE',         'INSERT, UPDATE, DELETE'),
            ('audit',            'INSERT',                         'INSERT')
        ) AS rights (name, writer, reconciler)
    LOOP
        place := format('%I.%I', current_schema(), granted.name);
        CONTINUE WHEN to_regclass(place) IS NULL;
        EXECUTE format('ALTER TABLE %s OWNER TO deltaplane_owner', place);
        EXECUTE format('REVOKE ALL ON TABLE %s FROM PUBLIC, deltaplane_reader, deltaplane_writer, deltaplane_reconciler', place);
        EXECUTE format('GRANT SELECT ON TABLE %s TO deltaplane_reader, deltaplane_writer, deltaplane_reconciler', place);
        IF granted.writer IS NOT NULL THEN
            EXECUTE format('GRANT %s ON TABLE %s TO deltaplane_writer', granted.writer, place);
        END IF;
        IF granted.reconciler IS NOT NULL THEN
            EXECUTE format('GRANT %s ON TABLE %s TO deltaplane_reconciler', granted.reconciler, place);
        END IF;
    END LOOP;
END
$$;
