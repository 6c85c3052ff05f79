"""Reads the part `access` of spill.yaml."""

import re
from typing import Final
from urllib.parse import urlsplit

from spillover.config.urls import wrong_url
from spillover.forms.problems import Findings, shown
from spillover.forms.quantities import duration
from spillover.model.access import Access
from spillover.model.identity import CALLBACK, GroupRights, Oidc
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.tokens import TokenRole
from spillover.model.units import DAY, MINUTE
from spillover.wire.accessfile import AccessDoc, OidcDoc

MOST_SIGN_IN: Final = 365 * DAY
_DOMAIN: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?", re.ASCII)


def read_access(doc: AccessDoc, found: Findings) -> Access:
    """Read who may change whose jobs."""
    for project, users in doc.maintainers.items():
        path = ("access", "maintainers", project)
        if not is_name(project):
            found.add(path, f"{shown(project)} is not a project: {NAME_RULE}")
        for at, user in enumerate(users):
            if not is_name(user):
                found.add((*path, at), f"{shown(user)} is not a user: {NAME_RULE}")
    most = {TokenRole.SUBMIT: doc.max_priority.submit, TokenRole.MAINTAIN: doc.max_priority.maintain}
    lasts = duration(doc.sign_in_lasts, ("access", "sign_in_lasts"), found, least=MINUTE, most=MOST_SIGN_IN)
    return Access(
        doc.changes,
        {project: tuple(users) for project, users in doc.maintainers.items()},
        {role: priority for role, priority in most.items() if priority is not None},
        lasts or 0,
        None if doc.oidc is None else _oidc(doc.oidc, found),
    )


def _oidc(doc: OidcDoc, found: Findings) -> Oidc:
    """Read where people sign in, and what their groups may do."""
    path = ("access", "oidc")
    for name, url in (("issuer", doc.issuer), ("redirect_uri", doc.redirect_uri)):
        if url is None:
            continue
        if told := wrong_url(url, "https://HOST/...", instead="client_secret_file", private="sign-ins"):
            found.add((*path, name), told)
        elif "?" in url or "#" in url:
            found.add((*path, name), f"{shown(url)} has a query or a fragment; leave it out")
    if doc.redirect_uri is not None and not doc.redirect_uri.endswith(CALLBACK):
        found.add((*path, "redirect_uri"), f"{shown(doc.redirect_uri)} does not end with {CALLBACK}")
    if "openid" not in doc.scope.split():
        found.add(
            (*path, "scope"), f"{shown(doc.scope)} lacks openid, without which the provider tells nothing"
        )
    if doc.domain is not None and _DOMAIN.fullmatch(doc.domain) is None:
        found.add(
            (*path, "domain"), f"{shown(doc.domain)} is not a domain; write it without @, such as example.org"
        )
    seen: set[str] = set()
    for at, each in enumerate(doc.groups):
        here = (*path, "groups", at)
        if each.group in seen:
            found.add((*here, "group"), f"{shown(each.group)} is there twice")
        seen.add(each.group)
        if each.project is not None and not is_name(each.project):
            found.add((*here, "project"), f"{shown(each.project)} is not a project: {NAME_RULE}")
        if each.project is not None and each.role == "admin":
            found.add((*here, "project"), "cannot limit the role admin; remove it, or write role: maintain")
    lasts = duration(doc.lasts, (*path, "lasts"), found, least=MINUTE, most=MOST_SIGN_IN)
    return Oidc(
        issuer=doc.issuer,
        client_id=doc.client_id,
        name=doc.name or urlsplit(doc.issuer).hostname or "",
        client_secret_file=doc.client_secret_file,
        device_client_id=doc.device_client_id or doc.client_id,
        scope=doc.scope,
        user_claim=doc.user_claim,
        groups_claim=doc.groups_claim,
        domain=doc.domain,
        groups=tuple(GroupRights(each.group, TokenRole(each.role), each.project) for each in doc.groups),
        lasts=lasts or 0,
        redirect_uri=doc.redirect_uri,
        ca=doc.ca,
    )
