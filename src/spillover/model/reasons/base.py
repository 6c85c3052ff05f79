"""What all reasons are: "not now" or "never"."""

from typing import ClassVar

from msgspec import Struct


class NotNow(Struct, frozen=True, tag_field="code"):
    """The job will run once something changes that can change by itself."""

    never: ClassVar[bool] = False


class Never(Struct, frozen=True, tag_field="code"):
    """The job will never run, as things are."""

    never: ClassVar[bool] = True
