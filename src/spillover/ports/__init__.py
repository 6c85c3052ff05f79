"""The Protocols that control needs."""
