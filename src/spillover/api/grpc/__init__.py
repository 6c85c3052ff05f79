"""Serves gRPC, for agents and for programs of users and operators."""
