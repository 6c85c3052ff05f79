"""The client for asyncio. The one that blocks is generated from these modules: an operation is written once, here."""
