"""Goals, and what was measured against them."""
