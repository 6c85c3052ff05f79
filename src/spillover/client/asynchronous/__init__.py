"""The client for asyncio. `make client` generates the blocking client from these modules."""
