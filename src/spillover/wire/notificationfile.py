"""The form of `notifications` in spill.yaml."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

from spillover.wire.jobfile import Quantity

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1000)]
Names: TypeAlias = Annotated[list[str], Meta(max_length=1000)]


class WebhookDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A receiver of messages by HTTP."""

    name: Annotated[str, Meta(description="Name of the webhook, for rules and jobs.")]
    url: Annotated[
        Annotated[str, Meta(max_length=2000)],
        Meta(description="Where messages are posted to: https, or http on this machine."),
    ]
    secret_file: Annotated[
        Text | None, Meta(description="File with the secret that signs messages; one in each line.")
    ] = None
    secret_env: Annotated[
        Text | None, Meta(description="Variable of the server's environment with that secret.")
    ] = None
    ca: Annotated[
        Text | None, Meta(description="File with the CA of its certificate; default: those of the system.")
    ] = None
    projects: Annotated[
        Names | Literal["all"], Meta(description="Projects whose jobs may name it, or `all`; default: none.")
    ] = field(default_factory=list)
    timeout: Annotated[Quantity, Meta(description="How long one try may take.")] = "10s"


class MailDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The server that takes mail."""

    server: Annotated[Text, Meta(description="Name or address of the SMTP server.")]
    sender: Annotated[str, Meta(description="Address of the sender, such as spill@example.org.")] = field(
        name="from"
    )
    security: Annotated[
        Literal["starttls", "tls", "none"], Meta(description="How the connection is encrypted.")
    ] = "starttls"
    port: Annotated[
        Annotated[int, Meta(ge=1, le=65_535)] | None,
        Meta(description="Its port; default: 587, with `tls` 465, with `none` 25."),
    ] = None
    user: Annotated[Text | None, Meta(description="Name to log in with; default: no login.")] = None
    password_file: Annotated[Text | None, Meta(description="File with the password.")] = None
    password_env: Annotated[
        Text | None, Meta(description="Variable of the server's environment with the password.")
    ] = None
    ca: Annotated[
        Text | None, Meta(description="File with the CA of its certificate; default: those of the system.")
    ] = None
    domains: Annotated[
        Names, Meta(description="Domains of addresses that jobs may name, such as example.org; default: all.")
    ] = field(default_factory=list)
    timeout: Annotated[
        Quantity, Meta(description="How long the server may be silent before a try has failed.")
    ] = "30s"


class RuleDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Who is told of what."""

    to: Annotated[
        Annotated[list[str], Meta(min_length=1, max_length=100)],
        Meta(description="Mail addresses, and names of webhooks."),
    ]
    on: Annotated[
        Annotated[
            list[
                Literal[
                    "begin",
                    "end",
                    "fail",
                    "time_limit",
                    "requeue",
                    "budget",
                    "agent_lost",
                    "cluster_failed",
                    "cluster_ready",
                    "pool_paused",
                ]
            ],
            Meta(min_length=1, max_length=20),
        ],
        Meta(description="What they are told of."),
    ]
    projects: Annotated[Names, Meta(description="Only jobs and budgets of these projects; default: all.")] = (
        field(default_factory=list)
    )


class NotificationsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How the server tells people and programs what happens."""

    webhooks: Annotated[
        Annotated[list[WebhookDoc], Meta(max_length=100)],
        Meta(description="Receivers of messages by HTTP."),
    ] = field(default_factory=list)
    mail: Annotated[MailDoc | None, Meta(description="The SMTP server; default: no mail.")] = None
    rules: Annotated[
        Annotated[list[RuleDoc], Meta(max_length=1000)],
        Meta(description="Who is told of what, besides those whom jobs name."),
    ] = field(default_factory=list)
    give_up_after: Annotated[
        Quantity,
        Meta(description="How long a message is tried before it goes to the list of failed ones."),
    ] = "1d"
