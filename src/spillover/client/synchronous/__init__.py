"""The client for code that blocks, generated from `client/asynchronous/` by `make client`."""
