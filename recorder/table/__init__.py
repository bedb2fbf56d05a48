"""Packed rows with an episode index, and the draws that training takes from them."""
