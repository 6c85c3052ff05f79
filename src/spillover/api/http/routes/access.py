"""Handles endpoints about who may do what: tokens and secrets. Signing in is in `signing_in.py`."""

from spillover.api.http.routing import Request, serves
from spillover.wire import endpoints
from spillover.wire.api import (
    NewToken,
    RekeyOutcome,
    SecretRef,
    SecretRequest,
    SecretView,
    TokenRef,
    TokenRequest,
    TokenView,
)
from spillover.wire.parameters import NoParameters, SecretsQuery


@serves(endpoints.CREATE_TOKEN)
async def create_token(request: Request[NoParameters, TokenRequest]) -> NewToken:
    """Create a token."""
    return await request.commands.create_token(request.body, request.user)


@serves(endpoints.TOKENS)
async def tokens(request: Request[NoParameters, None]) -> list[TokenView]:
    """List tokens."""
    return await request.commands.tokens()


@serves(endpoints.REVOKE_TOKEN)
async def revoke_token(request: Request[NoParameters, TokenRef]) -> TokenRef:
    """Revoke a token."""
    await request.commands.revoke_token(request.body.id, request.user)
    return request.body


@serves(endpoints.SET_SECRET)
async def set_secret(request: Request[NoParameters, SecretRequest]) -> SecretView:
    """Set a secret."""
    return await request.commands.set_secret(request.body, request.user)


@serves(endpoints.SECRETS)
async def secrets(request: Request[SecretsQuery, None]) -> list[SecretView]:
    """List secrets."""
    return await request.commands.secrets(request.asked.project)


@serves(endpoints.REMOVE_SECRET)
async def remove_secret(request: Request[NoParameters, SecretRef]) -> SecretRef:
    """Remove a secret."""
    return await request.commands.remove_secret(request.body, request.user)


@serves(endpoints.REKEY_SECRETS)
async def rekey_secrets(request: Request[NoParameters, None]) -> RekeyOutcome:
    """Encrypt all secrets with the first key."""
    return await request.commands.rekey_secrets()
