"""The provider `command`: three programs of the operator create, list and destroy machines."""
