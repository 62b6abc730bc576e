"""The Databricks flavour of the adapters."""
