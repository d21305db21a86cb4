"""The files that the agent works on, and what Deskmate keeps of them."""
