"""Environments in language: observations and actions as text."""
