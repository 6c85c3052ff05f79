"""The deterministic core: proposals, decide, events, apply and state, all without side effects."""
