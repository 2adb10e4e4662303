"""The calls of one reply, or of one caller: sent, waited for, taken back."""
