"""Operations on tensors that need nothing of the library but its core."""
