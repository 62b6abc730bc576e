"""Statement templates, read by `deltaplane.sqltext`."""
