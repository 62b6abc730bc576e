"""For people who write adapters: a catalog in memory, and the behaviours every catalog must show."""

from deltaplane.testing.behaviours import CatalogBehaviours
from deltaplane.testing.memory import InMemoryCatalog

__all__ = ["CatalogBehaviours", "InMemoryCatalog"]
