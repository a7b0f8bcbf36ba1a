"""A small inference engine: one decoder-layer step, dispatched by predicates. It knows nothing of kaudit."""
