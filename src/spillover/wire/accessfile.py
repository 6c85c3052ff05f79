"""The part `access` of spill.yaml: who may change whose jobs, and how people sign in."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from spillover.wire.jobfile import Quantity


class MaxPriorityDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The highest priority that each role may give. An admin may give any."""

    submit: Annotated[
        Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None,
        Meta(description="For tokens of role submit; default: any."),
    ] = None
    maintain: Annotated[
        Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None,
        Meta(description="For maintainers; default: any."),
    ] = None


class GroupDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """What members of a group of the provider may do."""

    group: Annotated[
        str, Meta(min_length=1, description="Name of the group, exactly as the provider tells it.")
    ]
    role: Annotated[
        Literal["read", "submit", "maintain", "admin"],
        Meta(description="Role of its members, as of a token."),
    ]
    project: Annotated[str | None, Meta(description="The only project that they may see; default: all.")] = (
        None
    )


class OidcDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A provider of OpenID Connect where people sign in."""

    issuer: Annotated[str, Meta(description="URL of the provider, exactly as it calls itself.")]
    client_id: Annotated[str, Meta(min_length=1, description="Id of the client that stands for this server.")]
    groups: Annotated[
        list[GroupDoc],
        Meta(
            min_length=1,
            max_length=10_000,
            description="Groups whose members may sign in, and what they may do. The strongest role counts.",
        ),
    ]
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | None,
        Meta(description="What the page calls the provider; default: the host of its URL."),
    ] = None
    client_secret_file: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="File with the secret of the client; default: a client without a secret."),
    ] = None
    device_client_id: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Id of the client of spill login, which has no secret; default: client_id."),
    ] = None
    scope: Annotated[str, Meta(description="What the server asks the provider for.")] = (
        "openid profile email groups"
    )
    user_claim: Annotated[str, Meta(min_length=1, description="The claim with the name of the user.")] = (
        "preferred_username"
    )
    groups_claim: Annotated[
        str, Meta(min_length=1, description="The claim with the groups of the user; dots lead into objects.")
    ] = "groups"
    domain: Annotated[
        str | None,
        Meta(description="Domain of mail addresses of which only the part before @ becomes the user name."),
    ] = None
    lasts: Annotated[Quantity, Meta(description="How long a sign-in lasts.")] = "12h"
    redirect_uri: Annotated[
        str | None,
        Meta(
            description="Address to which the provider sends browsers back; default: this server as the browser reached it."
        ),
    ] = None
    ca: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="File with the authority of its certificate; default: those of the system."),
    ] = None


class AccessDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Who may change whose jobs, and how people sign in."""

    changes: Annotated[
        Literal["owner", "project"],
        Meta(
            description="Who changes a job, besides maintainers and admins: its owner, or all who may submit to its project."
        ),
    ] = "owner"
    maintainers: Annotated[
        dict[str, Annotated[list[str], Meta(max_length=1000)]],
        Meta(
            max_length=10_000,
            description="Users who may change all jobs of a project, by project; their tokens must name them.",
        ),
    ] = field(default_factory=dict)
    max_priority: Annotated[
        MaxPriorityDoc, Meta(description="The highest priority that each role may give.")
    ] = MaxPriorityDoc()
    sign_in_lasts: Annotated[
        Quantity, Meta(description="How long a sign-in with a token or a link lasts.")
    ] = "7d"
    oidc: Annotated[
        OidcDoc | None, Meta(description="Provider of OpenID Connect where people sign in; default: none.")
    ] = None
