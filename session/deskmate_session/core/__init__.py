"""The pure core: folds, plan, decisions, projections. No I/O, no clock, no await; ports are handed in."""
