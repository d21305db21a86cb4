"""What people see: wire shapes made from folded state. They decide nothing."""
