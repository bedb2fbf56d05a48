"""Emulate a servo bus, which any driver can use like a real one."""
