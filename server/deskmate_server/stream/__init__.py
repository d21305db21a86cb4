"""From updates to `$/progress`: coalesced, in order, bounded for a client that reads slowly."""
