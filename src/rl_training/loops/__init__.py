"""Training loops, one per data regime. No algorithm's name appears in them."""
