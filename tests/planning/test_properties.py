"""Random pairs of declarations, planned and applied in memory."""

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltaplane as dp
from deltaplane.planning import OPEN_SOURCE, plan_table
from deltaplane.planning.codec import encode
from deltaplane.planning.saved import from_json, to_json
from deltaplane.sync import Engine
from deltaplane.testing import InMemoryCatalog
from pairs import CODES_TO_WAIVE, make_pair

PAIRS = 2000


def consenting(*tables: dp.DeltaTable) -> dp.Registry:
    """A registry whose owner agrees to everything that can be agreed to."""
    registry = dp.Registry(*tables)
    for table in tables:
        for code in CODES_TO_WAIVE:
            registry.waive(code, str(table.qualified_name), reason="the test agrees")
    return registry


def test_two_thousand_random_edits_arrive_or_are_blocked_by_a_rule() -> None:
    """Applying plan(A->B) to A and reading back gives B, and then there is nothing left to plan."""
    blocked = 0
    for seed in range(PAIRS):
        before, after = make_pair(Random(seed), f"t{seed}")
        engine = Engine(InMemoryCatalog())
        engine.sync(consenting(before))
        assert engine.plan(consenting(before)).is_empty, f"seed {seed}: plan(A->A) is not empty"
        plan = engine.plan(consenting(after))
        if plan.is_blocked:
            blocked += 1
            continue
        engine.apply(plan)
        again = engine.plan(consenting(after))
        assert again.changes == (), f"seed {seed}: {[c.summary for c in again.changes]}"
    assert blocked <= PAIRS // 2, f"{blocked} of {PAIRS} pairs were blocked"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_planning_is_deterministic_and_survives_being_saved(rnd: Random) -> None:
    """The same input gives the same plan, and a saved plan is read back as it was."""
    import json

    before, after = make_pair(rnd, "t")
    engine = Engine(InMemoryCatalog())
    engine.sync(consenting(before))
    first, second = engine.plan(consenting(after)), engine.plan(consenting(after))
    assert first == second
    assert first.plan_id == second.plan_id
    loaded = from_json(json.dumps(to_json(first)))
    assert [encode(c) for c in loaded.changes] == [encode(c) for c in first.changes]


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_order_of_registration_changes_nothing(rnd: Random) -> None:
    """A registry is a set: shuffling it gives the same plan."""
    pairs = [make_pair(rnd, f"t{n}") for n in range(4)]
    engine = Engine(InMemoryCatalog())
    engine.sync(consenting(*(a for a, _ in pairs)))
    edited = [b for _, b in pairs]
    plan = engine.plan(consenting(*edited))
    rnd.shuffle(edited)
    assert engine.plan(consenting(*edited)) == plan


def test_a_property_may_have_any_name() -> None:
    """Even that of the tag that saved plans use for their own values."""
    import json

    from deltaplane.schema import Column, DeltaTable, Long

    odd = DeltaTable("dev", "s", "t", [Column("a", Long())], properties={"__class__": "x", "is": "y"})
    plan = Engine(InMemoryCatalog()).plan(dp.Registry(odd))
    assert from_json(json.dumps(to_json(plan))) == plan


def test_a_table_planned_against_itself_is_unchanged() -> None:
    """plan(B->B) is empty for freshly created tables of every shape."""
    from deltaplane.planning.simulate import simulate_all

    for seed in range(300):
        table, _ = make_pair(Random(seed), "t")
        created = plan_table(table, None, OPEN_SOURCE)
        state = simulate_all(None, created.changes, OPEN_SOURCE)
        assert plan_table(table, state, OPEN_SOURCE).changes == ()
