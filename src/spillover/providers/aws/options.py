"""The options of the provider aws, as in spill.yaml."""

from typing import Annotated

from msgspec import Meta, Struct, field

from spillover.wire.jobfile import Quantity

_Text = Annotated[str, Meta(min_length=1, max_length=1024)]


class AwsForm(Struct, frozen=True, forbid_unknown_fields=True):
    """How machines of EC2 are created."""

    region: Annotated[
        _Text | None, Meta(description="Region; default: AWS_REGION, else AWS_DEFAULT_REGION.")
    ] = None
    image: Annotated[
        _Text | None, Meta(description="AMI of the machines, or resolve:ssm:PARAMETER that names one.")
    ] = None
    images: Annotated[
        dict[_Text, _Text],
        Meta(description="AMI by type (g5.xlarge) or family (g5), where it differs from `image`."),
    ] = {}
    launch_template: Annotated[
        _Text | None,
        Meta(
            description="Launch template, as NAME or lt-ID, with :VERSION if not the default version. Other options override it."
        ),
    ] = None
    subnets: Annotated[
        dict[_Text, _Text], Meta(description="Subnet by zone; default: the default subnet of each zone.")
    ] = {}
    security_groups: Annotated[
        list[_Text],
        Meta(description="Ids of security groups; default: those of the template or the VPC."),
    ] = field(default_factory=list)
    public_ip: Annotated[
        bool | None, Meta(description="Whether machines get a public address; default: as their subnet says.")
    ] = None
    key: Annotated[_Text | None, Meta(description="Name of the key pair for SSH; default: none.")] = None
    instance_profile: Annotated[
        _Text | None, Meta(description="Name or ARN of the instance profile, for tasks that use AWS.")
    ] = None
    placement_group: Annotated[
        _Text | None, Meta(description="Placement group of machines that are rented together for a gang.")
    ] = None
    disk: Annotated[
        Quantity | None,
        Meta(description="Size of the root volume, such as 100Gi; default: that of the image."),
    ] = None
    disk_type: Annotated[_Text, Meta(description="Type of the root volume, if `disk` is set.")] = "gp3"
    tags: Annotated[dict[str, str], Meta(description="More tags of machines and their volumes.")] = {}
    setup: Annotated[list[str], Meta(description="Shell lines that run as root before the agent starts.")] = (
        field(default_factory=list)
    )
    program: Annotated[
        _Text, Meta(description="The program spill on the machines; /opt/spillover/bin is on its PATH.")
    ] = "spill"
    profile: Annotated[
        _Text | None, Meta(description="Profile in the AWS configuration files; default: AWS_PROFILE.")
    ] = None
    endpoint: Annotated[
        _Text | None, Meta(description="URL of the API, for tests; default: that of AWS.")
    ] = None
