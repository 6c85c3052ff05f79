"""Small fakes of clouds behind real HTTP servers, which follow the documented behaviour and fail on request."""
