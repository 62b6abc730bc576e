"""The behaviours of a catalog, on every adapter."""

from __future__ import annotations

import pytest

from deltaplane.sync import Engine
from deltaplane.testing import InMemoryCatalog
from deltaplane.testing.behaviours import CatalogBehaviours


class TestInMemoryCatalog(CatalogBehaviours):
    """Without Spark."""

    @pytest.fixture
    def engine(self) -> Engine:
        return Engine(InMemoryCatalog())


@pytest.mark.spark
class TestSparkCatalog(CatalogBehaviours):
    """On real Spark: the fixtures of the suite."""
