"""One module per database. A store is registered as an entry point of the group `deltaplane.stores`."""
