-- Statements of open-source Spark 4.2 with Delta 4.4, as templates. The Databricks file stands beside this one and
-- holds only what differs. Values in braces are quoted before they get here.

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: create_table
CREATE TABLE {table} ({columns}) USING DELTA{layout}{comment}{location}{properties}

-- name: drop_table
DROP TABLE {table}

-- name: describe_detail
-- One row: format, location, size, layout, properties and protocol.
DESCRIBE DETAIL {table}

-- name: set_properties
ALTER TABLE {table} SET TBLPROPERTIES ({properties})

-- name: unset_properties
ALTER TABLE {table} UNSET TBLPROPERTIES IF EXISTS ({keys})

-- name: add_column
ALTER TABLE {table} ADD COLUMNS ({column})

-- name: drop_column
ALTER TABLE {table} DROP COLUMN {path}

-- name: rename_column
ALTER TABLE {table} RENAME COLUMN {path} TO {new}

-- name: change_type
ALTER TABLE {table} ALTER COLUMN {path} TYPE {type}

-- name: drop_not_null
ALTER TABLE {table} ALTER COLUMN {path} DROP NOT NULL

-- name: set_default
ALTER TABLE {table} ALTER COLUMN {path} SET DEFAULT {default}

-- name: drop_default
ALTER TABLE {table} ALTER COLUMN {path} DROP DEFAULT

-- name: backfill
-- Rows from before the column existed have no value for it.
UPDATE {table} SET {path} = DEFAULT WHERE {path} IS NULL

-- name: move_column
ALTER TABLE {table} ALTER COLUMN {path} {place}

-- name: column_comments
ALTER TABLE {table} ALTER COLUMN {comments}

-- name: table_comment
COMMENT ON TABLE {table} IS {comment}

-- name: add_check
ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({expression})

-- name: drop_check
ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}

-- name: cluster_by
ALTER TABLE {table} CLUSTER BY {columns}

-- name: repartition
-- For people to read. It runs through the DataFrame writer, in one commit that keeps properties, checks, comments
-- and defaults; only NOT NULL has to be held again afterwards.
OVERWRITE {table} WITH ITSELF PARTITIONED BY ({columns})

-- name: count_violations
-- The inner query shows the table as it will be: renamed columns under their new names, added ones with their default.
SELECT {counts} FROM (SELECT {columns} FROM {table})

-- name: sample_violations
SELECT {keys} FROM (SELECT {columns} FROM {table}) WHERE NOT ({expression}) OR ({expression}) IS NULL LIMIT {most}

-- name: shallow_clone
CREATE TABLE {stage} SHALLOW CLONE {table}

-- name: drop_schema
DROP SCHEMA IF EXISTS {schema} CASCADE

-- name: show_tables
SHOW TABLES IN {schema}

-- name: show_schemas
SHOW SCHEMAS IN {catalog}

-- name: restore
RESTORE TABLE {table} TO VERSION AS OF {version}
