from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WAITING: _ClassVar[Phase]
    RUNNING: _ClassVar[Phase]
    ENDED: _ClassVar[Phase]

class Yield(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RELEASED: _ClassVar[Yield]
    STARTED: _ClassVar[Yield]
    UNKNOWN: _ClassVar[Yield]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXITED: _ClassVar[Outcome]
    WALLTIME: _ClassVar[Outcome]
    STOPPED: _ClassVar[Outcome]
    LOST: _ClassVar[Outcome]
    NOT_STARTED: _ClassVar[Outcome]
    OUT_OF_MEMORY: _ClassVar[Outcome]
    UNKEPT: _ClassVar[Outcome]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCEPTED: _ClassVar[Verdict]
    DUPLICATE: _ClassVar[Verdict]
    FENCED: _ClassVar[Verdict]
    RESTART: _ClassVar[Verdict]
WAITING: Phase
RUNNING: Phase
ENDED: Phase
RELEASED: Yield
STARTED: Yield
UNKNOWN: Yield
EXITED: Outcome
WALLTIME: Outcome
STOPPED: Outcome
LOST: Outcome
NOT_STARTED: Outcome
OUT_OF_MEMORY: Outcome
UNKEPT: Outcome
ACCEPTED: Verdict
DUPLICATE: Verdict
FENCED: Verdict
RESTART: Verdict

class Lease(_message.Message):
    __slots__ = ("job", "attempt", "seq", "task")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    seq: int
    task: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., seq: _Optional[int] = ..., task: _Optional[int] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("cpu", "memory", "gpu")
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    cpu: int
    memory: int
    gpu: int
    def __init__(self, cpu: _Optional[int] = ..., memory: _Optional[int] = ..., gpu: _Optional[int] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("lease", "phase")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    phase: Phase
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., phase: _Optional[_Union[Phase, str]] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("protocol", "cluster", "name", "life", "capacity", "offers", "labels", "queue", "held", "epoch", "version", "pid", "peer", "number", "boot", "stream", "address", "gangs", "inside", "abilities")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GANGS_FIELD_NUMBER: _ClassVar[int]
    INSIDE_FIELD_NUMBER: _ClassVar[int]
    ABILITIES_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    cluster: str
    name: str
    life: str
    capacity: Resources
    offers: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    queue: int
    held: _containers.RepeatedCompositeFieldContainer[Held]
    epoch: int
    version: str
    pid: int
    peer: str
    number: int
    boot: str
    stream: bool
    address: str
    gangs: bool
    inside: Inside
    abilities: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol: _Optional[int] = ..., cluster: _Optional[str] = ..., name: _Optional[str] = ..., life: _Optional[str] = ..., capacity: _Optional[_Union[Resources, _Mapping]] = ..., offers: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., queue: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., epoch: _Optional[int] = ..., version: _Optional[str] = ..., pid: _Optional[int] = ..., peer: _Optional[str] = ..., number: _Optional[int] = ..., boot: _Optional[str] = ..., stream: _Optional[bool] = ..., address: _Optional[str] = ..., gangs: _Optional[bool] = ..., inside: _Optional[_Union[Inside, _Mapping]] = ..., abilities: _Optional[_Iterable[str]] = ...) -> None: ...

class Inside(_message.Message):
    __slots__ = ("domains", "gpus", "links")
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    domains: _containers.RepeatedCompositeFieldContainer[Domain]
    gpus: _containers.RepeatedScalarFieldContainer[str]
    links: _containers.RepeatedCompositeFieldContainer[Link]
    def __init__(self, domains: _Optional[_Iterable[_Union[Domain, _Mapping]]] = ..., gpus: _Optional[_Iterable[str]] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ...) -> None: ...

class Domain(_message.Message):
    __slots__ = ("socket", "cpus", "gpus", "memory")
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    socket: int
    cpus: _containers.RepeatedScalarFieldContainer[str]
    gpus: _containers.RepeatedScalarFieldContainer[str]
    memory: int
    def __init__(self, socket: _Optional[int] = ..., cpus: _Optional[_Iterable[str]] = ..., gpus: _Optional[_Iterable[str]] = ..., memory: _Optional[int] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("kind", "gpus")
    KIND_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    gpus: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., gpus: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("epoch", "incarnation", "keep", "heartbeat", "short_term", "log_retention", "session", "keep_output", "now", "stream", "spread", "token", "authority")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SHORT_TERM_FIELD_NUMBER: _ClassVar[int]
    LOG_RETENTION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KEEP_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    incarnation: int
    keep: _containers.RepeatedCompositeFieldContainer[Lease]
    heartbeat: int
    short_term: int
    log_retention: int
    session: bytes
    keep_output: bool
    now: int
    stream: bool
    spread: int
    token: str
    authority: bytes
    def __init__(self, epoch: _Optional[int] = ..., incarnation: _Optional[int] = ..., keep: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., heartbeat: _Optional[int] = ..., short_term: _Optional[int] = ..., log_retention: _Optional[int] = ..., session: _Optional[bytes] = ..., keep_output: _Optional[bool] = ..., now: _Optional[int] = ..., stream: _Optional[bool] = ..., spread: _Optional[int] = ..., token: _Optional[str] = ..., authority: _Optional[bytes] = ...) -> None: ...

class ListenRequest(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("shell", "argv", "python", "container", "env", "workdir", "resources", "walltime", "grace", "lost_after", "name", "inputs", "outputs", "outputs_limit", "tasks", "restarts", "stdout", "stderr", "append", "queue", "project", "array", "signal", "signal_before", "stdin", "keep_state", "state_limit", "saved", "terminal", "environment", "secrets")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SHELL_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    WORKDIR_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    WALLTIME_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    LOST_AFTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_BEFORE_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    KEEP_STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    shell: str
    argv: Argv
    python: PythonCall
    container: Container
    env: _containers.ScalarMap[str, str]
    workdir: str
    resources: Resources
    walltime: int
    grace: int
    lost_after: int
    name: str
    inputs: _containers.RepeatedCompositeFieldContainer[File]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    outputs_limit: int
    tasks: int
    restarts: bool
    stdout: str
    stderr: str
    append: bool
    queue: str
    project: str
    array: ArrayBounds
    signal: str
    signal_before: int
    stdin: File
    keep_state: bool
    state_limit: int
    saved: str
    terminal: bool
    environment: Environment
    secrets: _containers.RepeatedCompositeFieldContainer[SecretUse]
    def __init__(self, shell: _Optional[str] = ..., argv: _Optional[_Union[Argv, _Mapping]] = ..., python: _Optional[_Union[PythonCall, _Mapping]] = ..., container: _Optional[_Union[Container, _Mapping]] = ..., env: _Optional[_Mapping[str, str]] = ..., workdir: _Optional[str] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., walltime: _Optional[int] = ..., grace: _Optional[int] = ..., lost_after: _Optional[int] = ..., name: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[File, _Mapping]]] = ..., outputs: _Optional[_Iterable[str]] = ..., outputs_limit: _Optional[int] = ..., tasks: _Optional[int] = ..., restarts: _Optional[bool] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., append: _Optional[bool] = ..., queue: _Optional[str] = ..., project: _Optional[str] = ..., array: _Optional[_Union[ArrayBounds, _Mapping]] = ..., signal: _Optional[str] = ..., signal_before: _Optional[int] = ..., stdin: _Optional[_Union[File, _Mapping]] = ..., keep_state: _Optional[bool] = ..., state_limit: _Optional[int] = ..., saved: _Optional[str] = ..., terminal: _Optional[bool] = ..., environment: _Optional[_Union[Environment, _Mapping]] = ..., secrets: _Optional[_Iterable[_Union[SecretUse, _Mapping]]] = ...) -> None: ...

class SecretUse(_message.Message):
    __slots__ = ("name", "variable", "file")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VARIABLE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    name: str
    variable: str
    file: bool
    def __init__(self, name: _Optional[str] = ..., variable: _Optional[str] = ..., file: _Optional[bool] = ...) -> None: ...

class Environment(_message.Message):
    __slots__ = ("name", "requirements", "image", "lock")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    name: str
    requirements: str
    image: str
    lock: bool
    def __init__(self, name: _Optional[str] = ..., requirements: _Optional[str] = ..., image: _Optional[str] = ..., lock: _Optional[bool] = ...) -> None: ...

class ArrayBounds(_message.Message):
    __slots__ = ("first", "last", "size")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    size: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class Argv(_message.Message):
    __slots__ = ("words",)
    WORDS_FIELD_NUMBER: _ClassVar[int]
    words: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, words: _Optional[_Iterable[str]] = ...) -> None: ...

class PythonCall(_message.Message):
    __slots__ = ("call", "args", "function", "arguments", "items", "first", "values")
    CALL_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    call: str
    args: bytes
    function: str
    arguments: bytes
    items: str
    first: int
    values: _containers.RepeatedCompositeFieldContainer[EarlierValue]
    def __init__(self, call: _Optional[str] = ..., args: _Optional[bytes] = ..., function: _Optional[str] = ..., arguments: _Optional[bytes] = ..., items: _Optional[str] = ..., first: _Optional[int] = ..., values: _Optional[_Iterable[_Union[EarlierValue, _Mapping]]] = ...) -> None: ...

class EarlierValue(_message.Message):
    __slots__ = ("value", "digest")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    digest: str
    def __init__(self, value: _Optional[bytes] = ..., digest: _Optional[str] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("image", "command", "manifest")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    image: str
    command: _containers.RepeatedScalarFieldContainer[str]
    manifest: bytes
    def __init__(self, image: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., manifest: _Optional[bytes] = ...) -> None: ...

class File(_message.Message):
    __slots__ = ("path", "digest", "size", "executable")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    path: str
    digest: str
    size: int
    executable: bool
    def __init__(self, path: _Optional[str] = ..., digest: _Optional[str] = ..., size: _Optional[int] = ..., executable: _Optional[bool] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("lease", "task", "peer", "cpus", "gpus", "binds_memory")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    BINDS_MEMORY_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    task: Task
    peer: Peer
    cpus: str
    gpus: _containers.RepeatedScalarFieldContainer[str]
    binds_memory: bool
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., peer: _Optional[_Union[Peer, _Mapping]] = ..., cpus: _Optional[str] = ..., gpus: _Optional[_Iterable[str]] = ..., binds_memory: _Optional[bool] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("address", "ticket", "source", "digest")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    address: str
    ticket: bytes
    source: Lease
    digest: bytes
    def __init__(self, address: _Optional[str] = ..., ticket: _Optional[bytes] = ..., source: _Optional[_Union[Lease, _Mapping]] = ..., digest: _Optional[bytes] = ...) -> None: ...

class OutputRead(_message.Message):
    __slots__ = ("id", "job", "attempt", "task", "stderr", "offset", "follow", "stop", "position")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    id: int
    job: str
    attempt: int
    task: int
    stderr: bool
    offset: int
    follow: bool
    stop: bool
    position: int
    def __init__(self, id: _Optional[int] = ..., job: _Optional[str] = ..., attempt: _Optional[int] = ..., task: _Optional[int] = ..., stderr: _Optional[bool] = ..., offset: _Optional[int] = ..., follow: _Optional[bool] = ..., stop: _Optional[bool] = ..., position: _Optional[int] = ...) -> None: ...

class FromServer(_message.Message):
    __slots__ = ("epoch", "grants", "reads", "heartbeat_now", "renewed", "welcome", "gangs", "relays", "left")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_NOW_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    GANGS_FIELD_NUMBER: _ClassVar[int]
    RELAYS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    reads: _containers.RepeatedCompositeFieldContainer[OutputRead]
    heartbeat_now: bool
    renewed: HeartbeatReply
    welcome: RegisterReply
    gangs: _containers.RepeatedCompositeFieldContainer[GangStart]
    relays: _containers.RepeatedCompositeFieldContainer[RelayAsk]
    left: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., reads: _Optional[_Iterable[_Union[OutputRead, _Mapping]]] = ..., heartbeat_now: _Optional[bool] = ..., renewed: _Optional[_Union[HeartbeatReply, _Mapping]] = ..., welcome: _Optional[_Union[RegisterReply, _Mapping]] = ..., gangs: _Optional[_Iterable[_Union[GangStart, _Mapping]]] = ..., relays: _Optional[_Iterable[_Union[RelayAsk, _Mapping]]] = ..., left: _Optional[_Iterable[str]] = ...) -> None: ...

class RelayAsk(_message.Message):
    __slots__ = ("id", "job", "attempt", "task", "exec", "attach", "forward")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    EXEC_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    id: str
    job: str
    attempt: int
    task: int
    exec: Exec
    attach: bool
    forward: int
    def __init__(self, id: _Optional[str] = ..., job: _Optional[str] = ..., attempt: _Optional[int] = ..., task: _Optional[int] = ..., exec: _Optional[_Union[Exec, _Mapping]] = ..., attach: _Optional[bool] = ..., forward: _Optional[int] = ...) -> None: ...

class Exec(_message.Message):
    __slots__ = ("words", "terminal", "rows", "columns", "term")
    WORDS_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    words: _containers.RepeatedScalarFieldContainer[str]
    terminal: bool
    rows: int
    columns: int
    term: str
    def __init__(self, words: _Optional[_Iterable[str]] = ..., terminal: _Optional[bool] = ..., rows: _Optional[int] = ..., columns: _Optional[int] = ..., term: _Optional[str] = ...) -> None: ...

class RelayPiece(_message.Message):
    __slots__ = ("id", "data")
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    id: str
    data: bytes
    def __init__(self, id: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class GangStart(_message.Message):
    __slots__ = ("job", "attempt", "seq", "nodes", "hosts", "port", "ports", "token")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    seq: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    port: int
    ports: _containers.RepeatedScalarFieldContainer[int]
    token: bytes
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., seq: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ..., hosts: _Optional[_Iterable[str]] = ..., port: _Optional[int] = ..., ports: _Optional[_Iterable[int]] = ..., token: _Optional[bytes] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("incarnation", "held", "running", "load", "wall", "terms", "introduction", "leaving")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    WALL_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    INTRODUCTION_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    held: int
    running: int
    load: int
    wall: int
    terms: int
    introduction: RegisterRequest
    leaving: bool
    def __init__(self, incarnation: _Optional[int] = ..., held: _Optional[int] = ..., running: _Optional[int] = ..., load: _Optional[int] = ..., wall: _Optional[int] = ..., terms: _Optional[int] = ..., introduction: _Optional[_Union[RegisterRequest, _Mapping]] = ..., leaving: _Optional[bool] = ...) -> None: ...

class StopOrder(_message.Message):
    __slots__ = ("lease", "kill", "overdue")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    KILL_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    kill: bool
    overdue: bool
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., kill: _Optional[bool] = ..., overdue: _Optional[bool] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("epoch", "fenced", "stops", "drain", "revoked", "yields", "terms", "walltimes")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    STOPS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    WALLTIMES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    fenced: bool
    stops: _containers.RepeatedCompositeFieldContainer[StopOrder]
    drain: bool
    revoked: _containers.RepeatedCompositeFieldContainer[Lease]
    yields: _containers.RepeatedCompositeFieldContainer[YieldOrder]
    terms: Terms
    walltimes: _containers.RepeatedCompositeFieldContainer[WalltimeOrder]
    def __init__(self, epoch: _Optional[int] = ..., fenced: _Optional[bool] = ..., stops: _Optional[_Iterable[_Union[StopOrder, _Mapping]]] = ..., drain: _Optional[bool] = ..., revoked: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., yields: _Optional[_Iterable[_Union[YieldOrder, _Mapping]]] = ..., terms: _Optional[_Union[Terms, _Mapping]] = ..., walltimes: _Optional[_Iterable[_Union[WalltimeOrder, _Mapping]]] = ...) -> None: ...

class WalltimeOrder(_message.Message):
    __slots__ = ("lease", "walltime")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WALLTIME_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    walltime: int
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., walltime: _Optional[int] = ...) -> None: ...

class Terms(_message.Message):
    __slots__ = ("number", "heartbeat", "short_term")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SHORT_TERM_FIELD_NUMBER: _ClassVar[int]
    number: int
    heartbeat: int
    short_term: int
    def __init__(self, number: _Optional[int] = ..., heartbeat: _Optional[int] = ..., short_term: _Optional[int] = ...) -> None: ...

class YieldOrder(_message.Message):
    __slots__ = ("lease", "ticket")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    ticket: bytes
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class Yielded(_message.Message):
    __slots__ = ("lease", "answer")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    answer: Yield
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., answer: _Optional[_Union[Yield, str]] = ...) -> None: ...

class StartedTask(_message.Message):
    __slots__ = ("lease", "age")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    age: int
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., age: _Optional[int] = ...) -> None: ...

class PreparedTask(_message.Message):
    __slots__ = ("lease", "port", "shell", "token")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    port: int
    shell: int
    token: bytes
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., port: _Optional[int] = ..., shell: _Optional[int] = ..., token: _Optional[bytes] = ...) -> None: ...

class TaskResult(_message.Message):
    __slots__ = ("lease", "outcome", "exit_code", "signal", "ran", "cpu", "peak_memory", "age", "message", "value", "value_digest", "outputs", "run", "waits", "saved", "gpu", "gpu_measured", "gpu_memory")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    RAN_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VALUE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    GPU_MEASURED_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    outcome: Outcome
    exit_code: int
    signal: int
    ran: int
    cpu: int
    peak_memory: int
    age: int
    message: str
    value: bytes
    value_digest: str
    outputs: str
    run: int
    waits: bool
    saved: str
    gpu: int
    gpu_measured: int
    gpu_memory: int
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., ran: _Optional[int] = ..., cpu: _Optional[int] = ..., peak_memory: _Optional[int] = ..., age: _Optional[int] = ..., message: _Optional[str] = ..., value: _Optional[bytes] = ..., value_digest: _Optional[str] = ..., outputs: _Optional[str] = ..., run: _Optional[int] = ..., waits: _Optional[bool] = ..., saved: _Optional[str] = ..., gpu: _Optional[int] = ..., gpu_measured: _Optional[int] = ..., gpu_memory: _Optional[int] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("incarnation", "started", "results", "released", "leaving", "yielded", "prepared", "taken_back")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    YIELDED_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    TAKEN_BACK_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    started: _containers.RepeatedCompositeFieldContainer[StartedTask]
    results: _containers.RepeatedCompositeFieldContainer[TaskResult]
    released: _containers.RepeatedCompositeFieldContainer[Lease]
    leaving: bool
    yielded: _containers.RepeatedCompositeFieldContainer[Yielded]
    prepared: _containers.RepeatedCompositeFieldContainer[PreparedTask]
    taken_back: int
    def __init__(self, incarnation: _Optional[int] = ..., started: _Optional[_Iterable[_Union[StartedTask, _Mapping]]] = ..., results: _Optional[_Iterable[_Union[TaskResult, _Mapping]]] = ..., released: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., leaving: _Optional[bool] = ..., yielded: _Optional[_Iterable[_Union[Yielded, _Mapping]]] = ..., prepared: _Optional[_Iterable[_Union[PreparedTask, _Mapping]]] = ..., taken_back: _Optional[int] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("lease", "verdict")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    verdict: Verdict
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, str]] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ("epoch", "fenced", "results", "started", "yielded")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    YIELDED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    fenced: bool
    results: _containers.RepeatedCompositeFieldContainer[Answer]
    started: _containers.RepeatedCompositeFieldContainer[Lease]
    yielded: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, epoch: _Optional[int] = ..., fenced: _Optional[bool] = ..., results: _Optional[_Iterable[_Union[Answer, _Mapping]]] = ..., started: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., yielded: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class OutputChunk(_message.Message):
    __slots__ = ("incarnation", "id", "data", "end", "error", "position")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    id: int
    data: bytes
    end: bool
    error: str
    position: int
    def __init__(self, incarnation: _Optional[int] = ..., id: _Optional[int] = ..., data: _Optional[bytes] = ..., end: _Optional[bool] = ..., error: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class OutputReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BlobRequest(_message.Message):
    __slots__ = ("digest", "offset")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    digest: str
    offset: int
    def __init__(self, digest: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class BlobPiece(_message.Message):
    __slots__ = ("digest", "data")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    digest: str
    data: bytes
    def __init__(self, digest: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class BlobReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TasksRequest(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class TasksReply(_message.Message):
    __slots__ = ("grants",)
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...

class SecretsRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class SecretsReply(_message.Message):
    __slots__ = ("secrets", "refused")
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    secrets: _containers.RepeatedCompositeFieldContainer[SecretValue]
    refused: str
    def __init__(self, secrets: _Optional[_Iterable[_Union[SecretValue, _Mapping]]] = ..., refused: _Optional[str] = ...) -> None: ...

class SecretValue(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class StealRequest(_message.Message):
    __slots__ = ("wanted",)
    WANTED_FIELD_NUMBER: _ClassVar[int]
    wanted: _containers.RepeatedCompositeFieldContainer[Peer]
    def __init__(self, wanted: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ...) -> None: ...

class StealReply(_message.Message):
    __slots__ = ("source", "task", "blob")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    source: Lease
    task: Task
    blob: BlobPiece
    def __init__(self, source: _Optional[_Union[Lease, _Mapping]] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., blob: _Optional[_Union[BlobPiece, _Mapping]] = ...) -> None: ...
