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
    __slots__ = ("name", "project", "queue", "labels", "run", "command", "env", "workdir", "tasks", "resources", "walltime", "estimate", "deadline", "not_before", "priority", "needs", "array", "after", "key", "most_tasks", "groups", "on_task_failure", "on_task_success", "hold", "singleton", "stdout", "stderr", "signal_before", "signal", "keep_state", "environment", "within", "spread", "exclusive", "pin", "gpu_link", "reservation", "inputs", "outputs", "secrets", "container", "python", "burst", "max_cost", "data", "where", "constraints", "retry", "on_cluster_failure", "lost_after", "grace", "stdin", "terminal", "open_mode", "requirements", "requirements_file", "image", "dependencies", "notify")
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
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    ON_CLUSTER_FAILURE_FIELD_NUMBER: _ClassVar[int]
    LOST_AFTER_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    OPEN_MODE_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FILE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
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
    container: Container
    python: PythonCall
    burst: str
    max_cost: float
    data: int
    where: Where
    constraints: str
    retry: Retry
    on_cluster_failure: str
    lost_after: _duration_pb2.Duration
    grace: _duration_pb2.Duration
    stdin: Stdin
    terminal: bool
    open_mode: str
    requirements: str
    requirements_file: str
    image: str
    dependencies: _containers.RepeatedCompositeFieldContainer[Dependency]
    notify: _containers.RepeatedCompositeFieldContainer[Notify]
    def __init__(self, name: _Optional[str] = ..., project: _Optional[str] = ..., queue: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., run: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., workdir: _Optional[str] = ..., tasks: _Optional[int] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., walltime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., not_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., priority: _Optional[int] = ..., needs: _Optional[_Iterable[str]] = ..., array: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., key: _Optional[str] = ..., most_tasks: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., on_task_failure: _Optional[str] = ..., on_task_success: _Optional[str] = ..., hold: _Optional[bool] = ..., singleton: _Optional[bool] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., signal_before: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., signal: _Optional[str] = ..., keep_state: _Optional[bool] = ..., environment: _Optional[str] = ..., within: _Optional[_Union[Within, _Mapping]] = ..., spread: _Optional[_Union[Spread, _Mapping]] = ..., exclusive: _Optional[str] = ..., pin: _Optional[str] = ..., gpu_link: _Optional[str] = ..., reservation: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[Input, _Mapping]]] = ..., outputs: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Iterable[_Union[SecretUse, _Mapping]]] = ..., container: _Optional[_Union[Container, _Mapping]] = ..., python: _Optional[_Union[PythonCall, _Mapping]] = ..., burst: _Optional[str] = ..., max_cost: _Optional[float] = ..., data: _Optional[int] = ..., where: _Optional[_Union[Where, _Mapping]] = ..., constraints: _Optional[str] = ..., retry: _Optional[_Union[Retry, _Mapping]] = ..., on_cluster_failure: _Optional[str] = ..., lost_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., stdin: _Optional[_Union[Stdin, _Mapping]] = ..., terminal: _Optional[bool] = ..., open_mode: _Optional[str] = ..., requirements: _Optional[str] = ..., requirements_file: _Optional[str] = ..., image: _Optional[str] = ..., dependencies: _Optional[_Iterable[_Union[Dependency, _Mapping]]] = ..., notify: _Optional[_Iterable[_Union[Notify, _Mapping]]] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("image", "command")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    image: str
    command: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, image: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ...) -> None: ...

class PythonCall(_message.Message):
    __slots__ = ("call", "args")
    CALL_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    call: str
    args: str
    def __init__(self, call: _Optional[str] = ..., args: _Optional[str] = ...) -> None: ...

class Where(_message.Message):
    __slots__ = ("role", "kind", "cluster", "region", "labels", "avoid")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ROLE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    AVOID_FIELD_NUMBER: _ClassVar[int]
    role: str
    kind: _containers.RepeatedScalarFieldContainer[str]
    cluster: _containers.RepeatedScalarFieldContainer[str]
    region: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    avoid: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, role: _Optional[str] = ..., kind: _Optional[_Iterable[str]] = ..., cluster: _Optional[_Iterable[str]] = ..., region: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., avoid: _Optional[_Iterable[str]] = ...) -> None: ...

class Retry(_message.Message):
    __slots__ = ("exit", "lost")
    EXIT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    exit: int
    lost: int
    def __init__(self, exit: _Optional[int] = ..., lost: _Optional[int] = ...) -> None: ...

class Stdin(_message.Message):
    __slots__ = ("path", "digest", "size")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    path: str
    digest: str
    size: int
    def __init__(self, path: _Optional[str] = ..., digest: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class Dependency(_message.Message):
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
    __slots__ = ("name", "tasks", "resources", "run", "command", "env", "pin", "gpu_link", "container", "python")
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
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    name: str
    tasks: int
    resources: Resources
    run: str
    command: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    pin: str
    gpu_link: str
    container: Container
    python: PythonCall
    def __init__(self, name: _Optional[str] = ..., tasks: _Optional[int] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., run: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., pin: _Optional[str] = ..., gpu_link: _Optional[str] = ..., container: _Optional[_Union[Container, _Mapping]] = ..., python: _Optional[_Union[PythonCall, _Mapping]] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("cpu", "memory", "gpu", "other")
    class OtherEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    cpu: float
    memory: int
    gpu: int
    other: _containers.ScalarMap[str, int]
    def __init__(self, cpu: _Optional[float] = ..., memory: _Optional[int] = ..., gpu: _Optional[int] = ..., other: _Optional[_Mapping[str, int]] = ...) -> None: ...

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
    __slots__ = ("jobs", "states", "dry_run")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    states: _containers.RepeatedScalarFieldContainer[JobState]
    dry_run: bool
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., states: _Optional[_Iterable[_Union[JobState, str]]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

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

class ForecastJobsReply(_message.Message):
    __slots__ = ("jobs", "warnings")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobForecast]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobForecast, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class JobForecast(_message.Message):
    __slots__ = ("name", "cluster", "node", "nodes", "starts_at", "spills_at", "reason", "estimate", "estimated_cost", "cost_at_walltime", "expected_start", "note")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    STARTS_AT_FIELD_NUMBER: _ClassVar[int]
    SPILLS_AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_COST_FIELD_NUMBER: _ClassVar[int]
    COST_AT_WALLTIME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_START_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    name: str
    cluster: str
    node: str
    nodes: int
    starts_at: _timestamp_pb2.Timestamp
    spills_at: _timestamp_pb2.Timestamp
    reason: Reason
    estimate: _duration_pb2.Duration
    estimated_cost: float
    cost_at_walltime: float
    expected_start: ExpectedStart
    note: str
    def __init__(self, name: _Optional[str] = ..., cluster: _Optional[str] = ..., node: _Optional[str] = ..., nodes: _Optional[int] = ..., starts_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., spills_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ..., estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., estimated_cost: _Optional[float] = ..., cost_at_walltime: _Optional[float] = ..., expected_start: _Optional[_Union[ExpectedStart, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class ExpectedStart(_message.Message):
    __slots__ = ("p50", "p90")
    P50_FIELD_NUMBER: _ClassVar[int]
    P90_FIELD_NUMBER: _ClassVar[int]
    p50: _timestamp_pb2.Timestamp
    p90: _timestamp_pb2.Timestamp
    def __init__(self, p50: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., p90: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("states", "project", "user", "name", "queue", "since", "members", "limit", "cursor")
    STATES_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[JobState]
    project: str
    user: str
    name: str
    queue: str
    since: _timestamp_pb2.Timestamp
    members: bool
    limit: int
    cursor: str
    def __init__(self, states: _Optional[_Iterable[_Union[JobState, str]]] = ..., project: _Optional[str] = ..., user: _Optional[str] = ..., name: _Optional[str] = ..., queue: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., members: _Optional[bool] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListJobsReply(_message.Message):
    __slots__ = ("jobs", "next")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    next: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class ExplainJobRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class ExplainJobReply(_message.Message):
    __slots__ = ("id", "state", "reason", "sentence", "waiting_since", "waited", "spills_at", "ahead", "more_ahead", "estimate", "estimate_from", "estimate_because", "clusters", "estimated_cost", "cost_at_walltime", "ends_at", "expected_start", "expected_start_note")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    WAITING_SINCE_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    SPILLS_AT_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    MORE_AHEAD_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FROM_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_COST_FIELD_NUMBER: _ClassVar[int]
    COST_AT_WALLTIME_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_START_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_START_NOTE_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: JobState
    reason: Reason
    sentence: str
    waiting_since: _timestamp_pb2.Timestamp
    waited: _duration_pb2.Duration
    spills_at: _timestamp_pb2.Timestamp
    ahead: int
    more_ahead: bool
    estimate: _duration_pb2.Duration
    estimate_from: str
    estimate_because: str
    clusters: _containers.RepeatedCompositeFieldContainer[ClusterVerdict]
    estimated_cost: float
    cost_at_walltime: float
    ends_at: _timestamp_pb2.Timestamp
    expected_start: ExpectedStart
    expected_start_note: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ..., sentence: _Optional[str] = ..., waiting_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., waited: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., spills_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ahead: _Optional[int] = ..., more_ahead: _Optional[bool] = ..., estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., estimate_from: _Optional[str] = ..., estimate_because: _Optional[str] = ..., clusters: _Optional[_Iterable[_Union[ClusterVerdict, _Mapping]]] = ..., estimated_cost: _Optional[float] = ..., cost_at_walltime: _Optional[float] = ..., ends_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expected_start: _Optional[_Union[ExpectedStart, _Mapping]] = ..., expected_start_note: _Optional[str] = ...) -> None: ...

class ClusterVerdict(_message.Message):
    __slots__ = ("cluster", "role", "reason")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    role: str
    reason: Reason
    def __init__(self, cluster: _Optional[str] = ..., role: _Optional[str] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ...) -> None: ...

class WaitJobRequest(_message.Message):
    __slots__ = ("job", "timeout")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    job: str
    timeout: _duration_pb2.Duration
    def __init__(self, job: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetResultsRequest(_message.Message):
    __slots__ = ("jobs", "members", "limit", "timeout")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    members: str
    limit: int
    timeout: _duration_pb2.Duration
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., members: _Optional[str] = ..., limit: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetResultsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[JobResult]
    def __init__(self, results: _Optional[_Iterable[_Union[JobResult, _Mapping]]] = ...) -> None: ...

class JobResult(_message.Message):
    __slots__ = ("job", "state", "exit_code", "signal", "reason", "value", "value_digest")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VALUE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    job: str
    state: JobState
    exit_code: int
    signal: int
    reason: Reason
    value: bytes
    value_digest: str
    def __init__(self, job: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., reason: _Optional[_Union[Reason, _Mapping]] = ..., value: _Optional[bytes] = ..., value_digest: _Optional[str] = ...) -> None: ...

class ReadOutputRequest(_message.Message):
    __slots__ = ("job", "attempt", "task", "stderr", "offset", "follow")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    task: int
    stderr: bool
    offset: int
    follow: bool
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., task: _Optional[int] = ..., stderr: _Optional[bool] = ..., offset: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class OutputPiece(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ActionRequest(_message.Message):
    __slots__ = ("jobs", "states", "dry_run")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    states: _containers.RepeatedScalarFieldContainer[JobState]
    dry_run: bool
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., states: _Optional[_Iterable[_Union[JobState, str]]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ChangedJobs(_message.Message):
    __slots__ = ("jobs", "warnings")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangeJobRequest(_message.Message):
    __slots__ = ("job", "name", "priority", "cpu", "memory", "gpu", "walltime", "estimate", "deadline", "queue", "after", "throttle", "remove")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    WALLTIME_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    job: str
    name: str
    priority: int
    cpu: float
    memory: int
    gpu: int
    walltime: _duration_pb2.Duration
    estimate: _duration_pb2.Duration
    deadline: _timestamp_pb2.Timestamp
    queue: str
    after: _containers.RepeatedScalarFieldContainer[str]
    throttle: int
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job: _Optional[str] = ..., name: _Optional[str] = ..., priority: _Optional[int] = ..., cpu: _Optional[float] = ..., memory: _Optional[int] = ..., gpu: _Optional[int] = ..., walltime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., estimate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., queue: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., throttle: _Optional[int] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class RerunJobsRequest(_message.Message):
    __slots__ = ("jobs", "failed", "changes", "empty_state")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    EMPTY_STATE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    failed: bool
    changes: str
    empty_state: bool
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., failed: _Optional[bool] = ..., changes: _Optional[str] = ..., empty_state: _Optional[bool] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueuesReply(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "description", "default", "priority", "running", "queued", "used", "limits", "user_limits", "walltime", "projects", "users", "clusters")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    USER_LIMITS_FIELD_NUMBER: _ClassVar[int]
    WALLTIME_FIELD_NUMBER: _ClassVar[int]
    PROJECTS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    default: bool
    priority: int
    running: int
    queued: int
    used: QueueAmounts
    limits: QueueAmounts
    user_limits: QueueAmounts
    walltime: _duration_pb2.Duration
    projects: _containers.RepeatedScalarFieldContainer[str]
    users: _containers.RepeatedScalarFieldContainer[str]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., default: _Optional[bool] = ..., priority: _Optional[int] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., used: _Optional[_Union[QueueAmounts, _Mapping]] = ..., limits: _Optional[_Union[QueueAmounts, _Mapping]] = ..., user_limits: _Optional[_Union[QueueAmounts, _Mapping]] = ..., walltime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., projects: _Optional[_Iterable[str]] = ..., users: _Optional[_Iterable[str]] = ..., clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class QueueAmounts(_message.Message):
    __slots__ = ("running", "cpu", "memory", "gpu", "queued")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    running: int
    cpu: float
    memory: int
    gpu: int
    queued: int
    def __init__(self, running: _Optional[int] = ..., cpu: _Optional[float] = ..., memory: _Optional[int] = ..., gpu: _Optional[int] = ..., queued: _Optional[int] = ...) -> None: ...

class GetUsageRequest(_message.Message):
    __slots__ = ("by", "since")
    BY_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    by: _containers.RepeatedScalarFieldContainer[str]
    since: _timestamp_pb2.Timestamp
    def __init__(self, by: _Optional[_Iterable[str]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetUsageReply(_message.Message):
    __slots__ = ("currency", "rows", "total")
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    currency: str
    rows: _containers.RepeatedCompositeFieldContainer[UsageGroup]
    total: UsageGroup
    def __init__(self, currency: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[UsageGroup, _Mapping]]] = ..., total: _Optional[_Union[UsageGroup, _Mapping]] = ...) -> None: ...

class UsageGroup(_message.Message):
    __slots__ = ("key", "jobs", "owned", "rented", "measured", "unused", "cost")
    class KeyEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    RENTED_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    UNUSED_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    key: _containers.ScalarMap[str, str]
    jobs: int
    owned: Hours
    rented: Hours
    measured: Hours
    unused: Hours
    cost: float
    def __init__(self, key: _Optional[_Mapping[str, str]] = ..., jobs: _Optional[int] = ..., owned: _Optional[_Union[Hours, _Mapping]] = ..., rented: _Optional[_Union[Hours, _Mapping]] = ..., measured: _Optional[_Union[Hours, _Mapping]] = ..., unused: _Optional[_Union[Hours, _Mapping]] = ..., cost: _Optional[float] = ...) -> None: ...

class Hours(_message.Message):
    __slots__ = ("cpu", "gpu", "memory")
    CPU_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    cpu: float
    gpu: float
    memory: float
    def __init__(self, cpu: _Optional[float] = ..., gpu: _Optional[float] = ..., memory: _Optional[float] = ...) -> None: ...

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
