"""The protocol between client and server: messages, rows, errors, keys and the handshake."""
