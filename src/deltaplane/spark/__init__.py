"""Open-source Spark: the session, the names of its tables, and the catalog adapter."""
