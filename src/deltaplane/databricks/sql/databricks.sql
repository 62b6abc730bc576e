-- What Databricks says differently. Everything else is as in open_source.sql.

-- name: set_not_null
ALTER TABLE {table} ALTER COLUMN {path} SET NOT NULL

-- name: add_primary_key
ALTER TABLE {table} ADD CONSTRAINT {name} PRIMARY KEY ({columns})

-- name: add_unique_key
ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE ({columns})

-- name: add_foreign_key
ALTER TABLE {table} ADD CONSTRAINT {name} FOREIGN KEY ({columns}) REFERENCES {target}{target_columns}

-- name: drop_key
ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}

-- name: drop_primary_key
-- By kind, not by name: one that was made by hand is called something else.
ALTER TABLE {table} DROP PRIMARY KEY IF EXISTS

-- name: set_tags
ALTER TABLE {table} SET TAGS ({tags})

-- name: unset_tags
ALTER TABLE {table} UNSET TAGS ({keys})

-- name: set_column_tags
ALTER TABLE {table} ALTER COLUMN {column} SET TAGS ({tags})

-- name: unset_column_tags
ALTER TABLE {table} ALTER COLUMN {column} UNSET TAGS ({keys})

-- name: show_create
-- The only place that shows generation expressions and identities.
SHOW CREATE TABLE {table}

-- name: latest_version
SELECT version FROM (DESCRIBE HISTORY {table} LIMIT 1)

-- name: list_keys
SELECT c.constraint_name, c.constraint_type, k.column_name, k.ordinal_position,
       u.table_catalog AS to_catalog, u.table_schema AS to_schema, u.table_name AS to_table,
       u.column_name AS to_column
FROM {catalog}.information_schema.table_constraints AS c
JOIN {catalog}.information_schema.key_column_usage AS k
  ON k.constraint_catalog = c.constraint_catalog AND k.constraint_schema = c.constraint_schema
 AND k.constraint_name = c.constraint_name AND k.table_name = c.table_name
LEFT JOIN {catalog}.information_schema.constraint_column_usage AS u
  ON c.constraint_type = 'FOREIGN KEY' AND u.constraint_catalog = c.constraint_catalog
 AND u.constraint_schema = c.constraint_schema AND u.constraint_name = c.constraint_name
WHERE c.table_schema = {schema} AND c.table_name = {table}
ORDER BY c.constraint_name, k.ordinal_position

-- name: list_tags
SELECT NULL AS column_name, tag_name, tag_value FROM {catalog}.information_schema.table_tags
WHERE schema_name = {schema} AND table_name = {table}
UNION ALL
SELECT column_name, tag_name, tag_value FROM {catalog}.information_schema.column_tags
WHERE schema_name = {schema} AND table_name = {table}
