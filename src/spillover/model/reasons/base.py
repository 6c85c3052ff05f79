"""Base classes of reasons: "not now" and "never"."""

from typing import ClassVar

from msgspec import Struct


class NotNow(Struct, frozen=True, tag_field="code"):
    """The job can run once something changes that may change by itself."""

    never: ClassVar[bool] = False


class Never(Struct, frozen=True, tag_field="code"):
    """The job can never run unless someone changes the job or the configuration."""

    never: ClassVar[bool] = True
