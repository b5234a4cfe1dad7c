"""Operations on tensors that need only the core layer."""
