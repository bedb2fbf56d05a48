"""The wire: messages, rows, errors, keys and the handshake."""
