import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_HELD: _ClassVar[JobState]
    JOB_STATE_QUEUED: _ClassVar[JobState]
    JOB_STATE_PLACED: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
    JOB_STATE_TIMED_OUT: _ClassVar[JobState]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_HELD: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_PLACED: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState
JOB_STATE_TIMED_OUT: JobState

class SubmitJobRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ...) -> None: ...

class NewJob(_message.Message):
    __slots__ = ("job", "document")
    JOB_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    job: Job
    document: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., document: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("name", "project", "queue", "labels", "run", "command", "env", "workdir", "tasks", "resources", "walltime", "estimate", "deadline", "not_before", "priority", "needs", "array", "after", "key", "most_tasks", "groups", "on_task_failure", "on_task_success", "hold", "singleton", "stdout", "stderr", "signal_before", "signal", "keep_state", "environment", "within", "spread", "exclusive", "pin", "gpu_link", "reservation", "inputs", "outputs", "secrets", "notify", "dependencies")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    WORKDIR_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    WALLTIME_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MOST_TASKS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ON_TASK_FAILURE_FIELD_NUMBER: _ClassVar[int]
    ON_TASK_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    SINGLETON_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    KEEP_STATE_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    GPU_LINK_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    project: str
    queue: str
    labels: _containers.ScalarMap[str, str]
    run: str
    command: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    workdir: str
    tasks: int
    resources: Resources
    walltime: _duration_pb2.Duration
    estimate: _duration_pb2.Duration
    deadline: _timestamp_pb2.Timestamp
    not_before: _timestamp_pb2.Timestamp
    priority: int
    needs: _containers.RepeatedScalarFieldContainer[str]
    array: str
    after: _containers.RepeatedScalarFieldContainer[str]
    key: str
    most_tasks: int
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    on_task_failure: str
    on_task_success: str
    hold: bool
    singleton: bool
    stdout: str
    stderr: str
    signal_before: _duration_pb2.Duration
    signal: str
    keep_state: bool
    environment: str
    within: Within
    spread: Spread
    exclusive: str
    pin: str
    gpu_link: str
    reservation: str
    inputs: _containers.RepeatedCompositeFieldContainer[Input]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    secrets: _containers.RepeatedCompositeFieldContainer[SecretUse]
    notify: _containers.RepeatedCompositeFieldContainer[Notify]
    dependencies: _containers.RepeatedCompositeFieldContainer[After]
    def __init__(self, name: _Optional[str] = ..., project: _Optional[str] = ..., queue: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., run: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., workdir: _Optional[str] = ..., tasks: _Optional[int] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., walltime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., not_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., priority: _Optional[int] = ..., needs: _Optional[_Iterable[str]] = ..., array: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., key: _Optional[str] = ..., most_tasks: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., on_task_failure: _Optional[str] = ..., on_task_success: _Optional[str] = ..., hold: _Optional[bool] = ..., singleton: _Optional[bool] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., signal_before: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., signal: _Optional[str] = ..., keep_state: _Optional[bool] = ..., environment: _Optional[str] = ..., within: _Optional[_Union[Within, _Mapping]] = ..., spread: _Optional[_Union[Spread, _Mapping]] = ..., exclusive: _Optional[str] = ..., pin: _Optional[str] = ..., gpu_link: _Optional[str] = ..., reservation: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[Input, _Mapping]]] = ..., outputs: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Iterable[_Union[SecretUse, _Mapping]]] = ..., notify: _Optional[_Iterable[_Union[Notify, _Mapping]]] = ..., dependencies: _Optional[_Iterable[_Union[After, _Mapping]]] = ...) -> None: ...

class After(_message.Message):
    __slots__ = ("job", "on", "members")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    job: str
    on: str
    members: str
    def __init__(self, job: _Optional[str] = ..., on: _Optional[str] = ..., members: _Optional[str] = ...) -> None: ...

class Notify(_message.Message):
    __slots__ = ("to", "on")
    TO_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    to: str
    on: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, to: _Optional[str] = ..., on: _Optional[_Iterable[str]] = ...) -> None: ...

class Within(_message.Message):
    __slots__ = ("level", "preferred")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_FIELD_NUMBER: _ClassVar[int]
    level: str
    preferred: bool
    def __init__(self, level: _Optional[str] = ..., preferred: _Optional[bool] = ...) -> None: ...

class Spread(_message.Message):
    __slots__ = ("over", "most", "exact")
    OVER_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    over: str
    most: int
    exact: bool
    def __init__(self, over: _Optional[str] = ..., most: _Optional[int] = ..., exact: _Optional[bool] = ...) -> None: ...

class SecretUse(_message.Message):
    __slots__ = ("name", "variable", "file")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VARIABLE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    name: str
    variable: str
    file: bool
    def __init__(self, name: _Optional[str] = ..., variable: _Optional[str] = ..., file: _Optional[bool] = ...) -> None: ...

class Input(_message.Message):
    __slots__ = ("path", "to", "digest", "size", "executable", "from_job", "members")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    FROM_JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    path: str
    to: str
    digest: str
    size: int
    executable: bool
    from_job: str
    members: str
    def __init__(self, path: _Optional[str] = ..., to: _Optional[str] = ..., digest: _Optional[str] = ..., size: _Optional[int] = ..., executable: _Optional[bool] = ..., from_job: _Optional[str] = ..., members: _Optional[str] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("name", "tasks", "resources", "run", "command", "env", "pin", "gpu_link")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    GPU_LINK_FIELD_NUMBER: _ClassVar[int]
    name: str
    tasks: int
    resources: Resources
    run: str
    command: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    pin: str
    gpu_link: str
    def __init__(self, name: _Optional[str] = ..., tasks: _Optional[int] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., run: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., pin: _Optional[str] = ..., gpu_link: _Optional[str] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("cpu", "memory", "gpu")
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    cpu: float
    memory: int
    gpu: int
    def __init__(self, cpu: _Optional[float] = ..., memory: _Optional[int] = ..., gpu: _Optional[int] = ...) -> None: ...

class SubmitJobReply(_message.Message):
    __slots__ = ("jobs", "warnings")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class GetJobStatusRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobs: _Optional[_Iterable[str]] = ...) -> None: ...

class GetJobStatusReply(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobs: _Optional[_Iterable[str]] = ...) -> None: ...

class CancelJobReply(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobs: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchJobsRequest(_message.Message):
    __slots__ = ("jobs", "project", "after")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    project: str
    after: int
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., project: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class WatchJobsReply(_message.Message):
    __slots__ = ("revision", "changes")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changes: _containers.RepeatedCompositeFieldContainer[JobChange]
    def __init__(self, revision: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[JobChange, _Mapping]]] = ...) -> None: ...

class Reason(_message.Message):
    __slots__ = ("code", "message", "never")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NEVER_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    never: bool
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., never: _Optional[bool] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("id", "name", "user", "project", "queue", "state", "cluster", "node", "attempt", "reason", "submitted_at", "started_at", "finished_at", "exit_code", "signal", "cost", "estimate", "members", "tasks")
    class MembersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class TasksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    user: str
    project: str
    queue: str
    state: JobState
    cluster: str
    node: str
    attempt: int
    reason: Reason
    submitted_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    exit_code: int
    signal: int
    cost: float
    estimate: _duration_pb2.Duration
    members: _containers.ScalarMap[str, int]
    tasks: _containers.ScalarMap[str, int]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., project: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., cluster: _Optional[str] = ..., node: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ..., submitted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., cost: _Optional[float] = ..., estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., members: _Optional[_Mapping[str, int]] = ..., tasks: _Optional[_Mapping[str, int]] = ...) -> None: ...

class JobChange(_message.Message):
    __slots__ = ("revision", "at", "job", "state", "attempt", "cluster", "node", "exit_code", "signal", "reason", "members")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    at: _timestamp_pb2.Timestamp
    job: str
    state: JobState
    attempt: int
    cluster: str
    node: str
    exit_code: int
    signal: int
    reason: Reason
    members: str
    def __init__(self, revision: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., job: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., attempt: _Optional[int] = ..., cluster: _Optional[str] = ..., node: _Optional[str] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ..., members: _Optional[str] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("path", "message")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    path: str
    message: str
    def __init__(self, path: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Problems(_message.Message):
    __slots__ = ("problems", "more")
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    more: int
    def __init__(self, problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., more: _Optional[int] = ...) -> None: ...
