-- Pruning falls back to the statistics text.

DROP TABLE file_bounds;
DROP TABLE pruning_columns;
