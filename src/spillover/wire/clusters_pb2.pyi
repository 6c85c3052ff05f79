from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobsThere(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOBS_THERE_UNSPECIFIED: _ClassVar[JobsThere]
    JOBS_THERE_FINISH: _ClassVar[JobsThere]
    JOBS_THERE_MOVE: _ClassVar[JobsThere]
    JOBS_THERE_CANCEL: _ClassVar[JobsThere]
JOBS_THERE_UNSPECIFIED: JobsThere
JOBS_THERE_FINISH: JobsThere
JOBS_THERE_MOVE: JobsThere
JOBS_THERE_CANCEL: JobsThere

class Cluster(_message.Message):
    __slots__ = ("name", "kind", "role", "life", "nodes", "running", "configured", "added_by", "drained_by", "leaving", "why")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    ADDED_BY_FIELD_NUMBER: _ClassVar[int]
    DRAINED_BY_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    role: str
    life: str
    nodes: int
    running: int
    configured: bool
    added_by: str
    drained_by: str
    leaving: str
    why: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., role: _Optional[str] = ..., life: _Optional[str] = ..., nodes: _Optional[int] = ..., running: _Optional[int] = ..., configured: _Optional[bool] = ..., added_by: _Optional[str] = ..., drained_by: _Optional[str] = ..., leaving: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class ListClustersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListClustersReply(_message.Message):
    __slots__ = ("clusters",)
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedCompositeFieldContainer[Cluster]
    def __init__(self, clusters: _Optional[_Iterable[_Union[Cluster, _Mapping]]] = ...) -> None: ...

class AddClusterRequest(_message.Message):
    __slots__ = ("document", "unchecked")
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    UNCHECKED_FIELD_NUMBER: _ClassVar[int]
    document: str
    unchecked: bool
    def __init__(self, document: _Optional[str] = ..., unchecked: _Optional[bool] = ...) -> None: ...

class AddClusterReply(_message.Message):
    __slots__ = ("cluster",)
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    cluster: Cluster
    def __init__(self, cluster: _Optional[_Union[Cluster, _Mapping]] = ...) -> None: ...

class DrainClustersRequest(_message.Message):
    __slots__ = ("clusters",)
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class DrainClustersReply(_message.Message):
    __slots__ = ("clusters",)
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class ResumeClustersRequest(_message.Message):
    __slots__ = ("clusters",)
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class ResumeClustersReply(_message.Message):
    __slots__ = ("clusters",)
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveClustersRequest(_message.Message):
    __slots__ = ("clusters", "jobs")
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    jobs: JobsThere
    def __init__(self, clusters: _Optional[_Iterable[str]] = ..., jobs: _Optional[_Union[JobsThere, str]] = ...) -> None: ...

class RemoveClustersReply(_message.Message):
    __slots__ = ("clusters",)
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class ApplyConfigRequest(_message.Message):
    __slots__ = ("dry_run", "jobs")
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    jobs: JobsThere
    def __init__(self, dry_run: _Optional[bool] = ..., jobs: _Optional[_Union[JobsThere, str]] = ...) -> None: ...

class ApplyConfigReply(_message.Message):
    __slots__ = ("changes", "done")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ConfigChange]
    done: bool
    def __init__(self, changes: _Optional[_Iterable[_Union[ConfigChange, _Mapping]]] = ..., done: _Optional[bool] = ...) -> None: ...

class ConfigChange(_message.Message):
    __slots__ = ("what", "change", "text")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    what: str
    change: str
    text: str
    def __init__(self, what: _Optional[str] = ..., change: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
