# SPDX-License-Identifier: Apache-2.0
# Types of the native module. Docstrings stand with the functions; tests/python/test_stubs.py holds the two together.
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, final

_T = TypeVar("_T")

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

# Any object with the buffer protocol (which Python's type system can name only from 3.12 on), DLPack or
# __cuda_array_interface__.
_Buffer = Any

# A stream or event of a framework, the number of a stream, False for nothing; None: the buffer's own stream.
_After = Any
_Stream = Any  # as _After, without events, False and None

# The name of an operation, or a function of two arrays of NumPy's.
_Reduction = str | Callable[[Any, Any], Any]

# A Store, or a callable that takes this rank's bytes and returns the list of all ranks'.
_Exchange = Any

__version__: str
ANY_TAG_MASK: int
FULL_TAG_MASK: int
PRIVATE_MAX: int
AM_HEADER_SHORT: int

def status_name(status: int) -> str: ...
def memory_query(buffer: _Buffer | int) -> dict[str, Any]: ...
def copy(context: Context, to: _Buffer, source: _Buffer) -> None: ...
def costs_save(values: str) -> str: ...
def topology_json() -> str: ...
def topology_place(rank: int, ranks: int) -> dict[str, Any]: ...
def topology_distance(source: str, to: str) -> dict[str, Any]: ...
def send_on(queue: Queue, peer: Endpoint, buffer: _Buffer, channel: int = 0, *, layout: Layout | None = None) -> None: ...
def recv_on(queue: Queue, peer: Endpoint, buffer: _Buffer, channel: int = 0, *, layout: Layout | None = None) -> None: ...
def put_on(
    queue: Queue,
    buffer: _Buffer,
    remote: RemoteMemory,
    offset: int = 0,
    *,
    signal: RemoteSignal | None = None,
    value: int = 1,
    layout: Layout | None = None,
    remote_layout: Layout | None = None,
) -> None: ...
def get_on(
    queue: Queue,
    buffer: _Buffer,
    remote: RemoteMemory,
    offset: int = 0,
    *,
    layout: Layout | None = None,
    remote_layout: Layout | None = None,
) -> None: ...
def signal_on(queue: Queue, signal: RemoteSignal, value: int = 1) -> None: ...
def copy_on(queue: Queue, to: _Buffer, source: _Buffer) -> None: ...
def reduce_on(
    queue: Queue,
    to: _Buffer,
    sources: Sequence[_Buffer | tuple[RemoteMemory, int]],
    op: str = "sum",
    *,
    dtype: Any = None,
) -> None: ...
def wait_on(queue: Queue, signal: Signal, value: int, compare: str = ">=") -> None: ...
def barrier_on(queue: Queue, group: Group, /, *, algorithm: str | None = None) -> None: ...
def broadcast_on(
    queue: Queue, group: Group, /, buffer: _Buffer, root: int = 0, *, dtype: Any = None, algorithm: str | None = None
) -> None: ...
def reduce_to_root_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer,
    recv: _Buffer | None = None,
    op: str = "sum",
    root: int = 0,
    *,
    dtype: Any = None,
    repeatable: bool = False,
    algorithm: str | None = None,
    scale: float | None = None,
) -> None: ...
def allreduce_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer,
    recv: _Buffer | None = None,
    op: str = "sum",
    *,
    dtype: Any = None,
    repeatable: bool = False,
    algorithm: str | None = None,
    scale: float | None = None,
) -> None: ...
def reduce_scatter_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer,
    recv: _Buffer | None = None,
    op: str = "sum",
    *,
    dtype: Any = None,
    repeatable: bool = False,
    algorithm: str | None = None,
    scale: float | None = None,
) -> None: ...
def reduce_scatterv_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer,
    recv: _Buffer | None,
    counts: Iterable[int],
    op: str = "sum",
    *,
    dtype: Any = None,
    repeatable: bool = False,
    algorithm: str | None = None,
    scale: float | None = None,
) -> None: ...
def allgather_on(
    queue: Queue, group: Group, /, send: _Buffer | None, recv: _Buffer, *, dtype: Any = None, algorithm: str | None = None
) -> None: ...
def allgatherv_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer | None,
    recv: _Buffer,
    counts: Iterable[int],
    offsets: Iterable[int] | None = None,
    *,
    dtype: Any = None,
    algorithm: str | None = None,
) -> None: ...
def gather_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer | None,
    recv: _Buffer | None = None,
    root: int = 0,
    *,
    dtype: Any = None,
    algorithm: str | None = None,
) -> None: ...
def gatherv_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer | None,
    recv: _Buffer | None = None,
    counts: Iterable[int] | None = None,
    offsets: Iterable[int] | None = None,
    root: int = 0,
    *,
    dtype: Any = None,
    algorithm: str | None = None,
) -> None: ...
def scatter_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer | None,
    recv: _Buffer | None = None,
    root: int = 0,
    *,
    dtype: Any = None,
    algorithm: str | None = None,
) -> None: ...
def scatterv_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer | None,
    recv: _Buffer | None = None,
    counts: Iterable[int] | None = None,
    offsets: Iterable[int] | None = None,
    root: int = 0,
    *,
    dtype: Any = None,
    algorithm: str | None = None,
) -> None: ...
def alltoall_on(
    queue: Queue, group: Group, /, send: _Buffer | None, recv: _Buffer, *, dtype: Any = None, algorithm: str | None = None
) -> None: ...
def alltoallv_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer,
    send_counts: Iterable[int],
    recv: _Buffer,
    recv_counts: Iterable[int],
    *,
    send_offsets: Iterable[int] | None = None,
    recv_offsets: Iterable[int] | None = None,
    dtype: Any = None,
    algorithm: str | None = None,
) -> None: ...
def alltoallv_counted_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer,
    send_counts: _Buffer,
    recv: _Buffer,
    recv_counts: _Buffer,
    *,
    send_offsets: _Buffer | None = None,
    recv_offsets: _Buffer | None = None,
    row_bytes: int | None = None,
    dtype: Any = None,
) -> None: ...
def scan_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer,
    recv: _Buffer | None = None,
    op: str = "sum",
    *,
    dtype: Any = None,
    repeatable: bool = False,
    algorithm: str | None = None,
    scale: float | None = None,
) -> None: ...
def exclusive_scan_on(
    queue: Queue,
    group: Group,
    /,
    send: _Buffer,
    recv: _Buffer | None = None,
    op: str = "sum",
    *,
    dtype: Any = None,
    repeatable: bool = False,
    algorithm: str | None = None,
    scale: float | None = None,
) -> None: ...
def stream_check(stream: _Stream) -> None: ...
def bind_send(
    peer: Endpoint, channel: int = 0, *, place: str | None = None, timeout: float | None = None, message_bytes: int = 0
) -> ChannelEnd: ...
def bind_recv(
    peer: Endpoint,
    buffers: Iterable[_Buffer | tuple[_Buffer, Layout]],
    channel: int = 0,
    *,
    place: str | None = None,
    timeout: float | None = None,
) -> ChannelEnd: ...
def describe(buffer: _Buffer) -> tuple[int, list[tuple[int, int]]]: ...
def _log_to_python(on: bool) -> None: ...
def _flush_log() -> None: ...
def _give_signature(kind: type, value: property) -> None: ...

class _Closing:
    def __enter__(self: _T) -> _T: ...
    def __exit__(self, *args: type[BaseException] | BaseException | TracebackType | None) -> None: ...

@final
class Context(_Closing):
    def __init__(
        self,
        *,
        job_key: bytes | None = None,
        key_file: str | None = None,
        transports: str | None = None,
        interfaces: str | None = None,
        socket_dir: str | None = None,
        silent_timeout: float | None = None,
        handshake_timeout: float | None = None,
        tls: bool = False,
        persistent_blocks: int = 0,
        persistent_idle: float | None = None,
        way: str | None = None,
    ) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def counters(self) -> dict[str, Any]: ...
    def trace(self, file: str | None) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

@final
class Worker(_Closing):
    def __init__(
        self,
        context: Context,
        *,
        threads: Literal["single", "multi"] = "single",
        progress: Literal["caller", "thread"] = "caller",
        unexpected_budget: int = 0,
    ) -> None: ...
    @property
    def context(self) -> Context: ...
    @property
    def address(self) -> bytes: ...
    def progress(self) -> int: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def wake(self) -> None: ...
    def fileno(self) -> int: ...
    def arm(self) -> bool: ...
    def flush(self, timeout: float | None = None) -> None: ...
    def iflush(self) -> Request: ...
    def next_notification(self) -> tuple[Endpoint | None, bytes] | None: ...
    def connect(
        self,
        address: bytes | bytearray | memoryview | str,
        *,
        data: bytes | None = None,
        timeout: float | None = None,
        transport: str | None = None,
        tls: bool = False,
        wait: bool = True,
    ) -> Endpoint: ...
    def listen(self, address: str = "127.0.0.1:0", *, backlog: int = 0) -> Listener: ...
    def recv(
        self,
        buffer: _Buffer,
        tag: int = 0,
        mask: int = ...,
        *,
        layout: Layout | None = None,
        timeout: float | None = None,
        source: Endpoint | None = None,
        after: _After = None,
    ) -> RecvInfo: ...
    def irecv(
        self,
        buffer: _Buffer,
        tag: int = 0,
        mask: int = ...,
        *,
        layout: Layout | None = None,
        source: Endpoint | None = None,
        after: _After = None,
    ) -> Request: ...
    def probe(self, tag: int = 0, mask: int = ..., *, source: Endpoint | None = None, take: bool = False) -> Any: ...
    def am_register(self, id: int, handler: Callable[[AmMessage], object] | None) -> None: ...
    def _turn(self) -> list[Request] | None: ...
    def _watch(self, request: Request) -> None: ...
    _on_disarm: Callable[[], object] | None
    _on_close: Callable[[], object] | None
    @property
    def _shared(self) -> bool: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

@final
class Listener(_Closing):
    @property
    def port(self) -> int: ...
    @property
    def worker(self) -> Worker: ...
    def next(self) -> ConnectionRequest | None: ...
    def accept(self, timeout: float | None = None, *, data: bytes | None = None, transport: str | None = None) -> Endpoint: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

@final
class ConnectionRequest:
    @property
    def data(self) -> bytes: ...
    @property
    def peer(self) -> str: ...
    def accept(self, data: bytes | None = None, *, transport: str | None = None) -> Endpoint: ...
    def reject(self, data: bytes = b"") -> None: ...

@final
class Endpoint(_Closing):
    _kept: Any
    @property
    def worker(self) -> Worker: ...
    @property
    def transport(self) -> str: ...
    @property
    def protected(self) -> bool: ...
    @property
    def state(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def send(
        self,
        buffer: _Buffer,
        tag: int = 0,
        *,
        sync: bool = False,
        immediate: int = 0,
        layout: Layout | None = None,
        timeout: float | None = None,
        after: _After = None,
        no_wait: bool = False,
    ) -> None: ...
    def isend(
        self,
        buffer: _Buffer,
        tag: int = 0,
        *,
        sync: bool = False,
        immediate: int = 0,
        layout: Layout | None = None,
        after: _After = None,
        no_wait: bool = False,
    ) -> Request: ...
    def recv(
        self,
        buffer: _Buffer,
        tag: int = 0,
        mask: int = ...,
        *,
        layout: Layout | None = None,
        timeout: float | None = None,
        after: _After = None,
    ) -> RecvInfo: ...
    def irecv(
        self, buffer: _Buffer, tag: int = 0, mask: int = ..., *, layout: Layout | None = None, after: _After = None
    ) -> Request: ...
    def bytes_send(self, buffer: _Buffer, *, timeout: float | None = None, no_wait: bool = False) -> None: ...
    def ibytes_send(self, buffer: _Buffer, *, no_wait: bool = False) -> Request: ...
    def bytes_recv(self, buffer: _Buffer, *, all: bool = False, timeout: float | None = None) -> RecvInfo: ...
    def ibytes_recv(self, buffer: _Buffer, *, all: bool = False) -> Request: ...
    def am_send(
        self,
        id: int,
        header: _Buffer | None = b"",
        buffer: _Buffer | None = None,
        *,
        protocol: str | None = None,
        timeout: float | None = None,
        after: _After = None,
        layout: Layout | None = None,
        no_wait: bool = False,
    ) -> None: ...
    def iam_send(
        self,
        id: int,
        header: _Buffer | None = b"",
        buffer: _Buffer | None = None,
        *,
        protocol: str | None = None,
        after: _After = None,
        layout: Layout | None = None,
        no_wait: bool = False,
    ) -> Request: ...
    def put(
        self,
        buffer: _Buffer,
        remote: RemoteMemory,
        offset: int = 0,
        *,
        signal: RemoteSignal | None = None,
        value: int = 1,
        after_all: bool = False,
        visible: bool = False,
        layout: Layout | None = None,
        remote_layout: Layout | None = None,
        immediate: int | None = None,
        handler: int | None = None,
        timeout: float | None = None,
        after: _After = None,
        no_wait: bool = False,
    ) -> None: ...
    def iput(
        self,
        buffer: _Buffer,
        remote: RemoteMemory,
        offset: int = 0,
        *,
        signal: RemoteSignal | None = None,
        value: int = 1,
        after_all: bool = False,
        visible: bool = False,
        layout: Layout | None = None,
        remote_layout: Layout | None = None,
        immediate: int | None = None,
        handler: int | None = None,
        after: _After = None,
        no_wait: bool = False,
    ) -> Request: ...
    def get(
        self,
        buffer: _Buffer,
        remote: RemoteMemory,
        offset: int = 0,
        *,
        layout: Layout | None = None,
        remote_layout: Layout | None = None,
        timeout: float | None = None,
        after: _After = None,
        no_wait: bool = False,
    ) -> None: ...
    def iget(
        self,
        buffer: _Buffer,
        remote: RemoteMemory,
        offset: int = 0,
        *,
        layout: Layout | None = None,
        remote_layout: Layout | None = None,
        after: _After = None,
        no_wait: bool = False,
    ) -> Request: ...
    def put_blocks(
        self,
        local: Blocks,
        local_index: _Buffer | Sequence[int],
        remote: RemoteBlocks,
        remote_index: _Buffer | Sequence[int],
        *,
        notification: _Buffer | None = None,
        handler: int | None = None,
        signal: RemoteSignal | None = None,
        value: int = 1,
        after_all: bool = False,
        visible: bool = False,
        timeout: float | None = None,
        no_wait: bool = False,
    ) -> None: ...
    def iput_blocks(
        self,
        local: Blocks,
        local_index: _Buffer | Sequence[int],
        remote: RemoteBlocks,
        remote_index: _Buffer | Sequence[int],
        *,
        notification: _Buffer | None = None,
        handler: int | None = None,
        signal: RemoteSignal | None = None,
        value: int = 1,
        after_all: bool = False,
        visible: bool = False,
        no_wait: bool = False,
    ) -> Request: ...
    def get_blocks(
        self,
        local: Blocks,
        local_index: _Buffer | Sequence[int],
        remote: RemoteBlocks,
        remote_index: _Buffer | Sequence[int],
        *,
        notification: _Buffer | None = None,
        handler: int | None = None,
        timeout: float | None = None,
        no_wait: bool = False,
    ) -> None: ...
    def iget_blocks(
        self,
        local: Blocks,
        local_index: _Buffer | Sequence[int],
        remote: RemoteBlocks,
        remote_index: _Buffer | Sequence[int],
        *,
        notification: _Buffer | None = None,
        handler: int | None = None,
        no_wait: bool = False,
    ) -> Request: ...
    def atomic(
        self,
        op: str,
        remote: RemoteMemory,
        offset: int,
        operand: int,
        *,
        compare: int = 0,
        size: int = 8,
        fetch: bool = True,
        timeout: float | None = None,
        visible: bool = False,
        no_wait: bool = False,
    ) -> int | None: ...
    def iatomic(
        self,
        op: str,
        remote: RemoteMemory,
        offset: int,
        operand: int,
        *,
        compare: int = 0,
        size: int = 8,
        fetch: bool = True,
        visible: bool = False,
        no_wait: bool = False,
    ) -> Request: ...
    def flush(self, timeout: float | None = None) -> None: ...
    def iflush(self) -> Request: ...
    def fence(self) -> None: ...
    def send_object(self, value: Any, tag: int = 0) -> None: ...
    def recv_object(self, tag: int = 0, *, timeout: float | None = None, device: Any = None) -> Any: ...
    def explain(self, verb: str = "send", length: int = 8, *, buffer: _Buffer | None = None) -> str: ...
    def close(self, *, force: bool = False) -> None: ...
    def iclose(self, *, force: bool = False) -> Request: ...
    @property
    def closed(self) -> bool: ...

@final
class RecvInfo:
    @property
    def endpoint(self) -> Endpoint | None: ...
    @property
    def tag(self) -> int: ...
    @property
    def immediate(self) -> int: ...
    @property
    def length(self) -> int: ...

@final
class Request:
    def done(self) -> bool: ...
    @property
    def ended(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> Any: ...
    def cancel(self) -> bool: ...
    def before(self, stream: _Stream) -> None: ...
    def tell(
        self,
        *,
        queue: CompletionQueue | None = None,
        counter: Counter | None = None,
        signal: Signal | None = None,
        value: int = 1,
    ) -> None: ...
    @property
    def worker(self) -> Worker: ...
    def _spin(self, seconds: float) -> bool: ...
    def _value(self) -> Any: ...
    _token: Any

@final
class CompletionQueue:
    def __init__(self, worker: Worker, *, notifications: bool = False) -> None: ...
    def poll(self, count: int = 256) -> list[Request | tuple[Endpoint | None, bytes]]: ...
    def wait(self, count: int = 256, timeout: float | None = None) -> list[Request | tuple[Endpoint | None, bytes]]: ...
    def __len__(self) -> int: ...
    def close(self) -> None: ...

@final
class Counter:
    def __init__(self, worker: Worker) -> None: ...
    @property
    def completed(self) -> int: ...
    @property
    def failed(self) -> int: ...
    def wait(self, total: int, timeout: float | None = None) -> None: ...
    def close(self) -> None: ...

@final
class Message:
    @property
    def length(self) -> int: ...
    @property
    def tag(self) -> int: ...
    @property
    def immediate(self) -> int: ...
    @property
    def endpoint(self) -> Endpoint | None: ...
    def recv(
        self, buffer: _Buffer, *, layout: Layout | None = None, timeout: float | None = None, after: _After = None
    ) -> RecvInfo: ...
    def irecv(self, buffer: _Buffer, *, layout: Layout | None = None, after: _After = None) -> Request: ...

@final
class AmMessage:
    @property
    def endpoint(self) -> Endpoint | None: ...
    @property
    def id(self) -> int: ...
    @property
    def header(self) -> bytes: ...
    @property
    def length(self) -> int: ...
    @property
    def data(self) -> bytes: ...
    def recv(
        self, buffer: _Buffer, *, layout: Layout | None = None, timeout: float | None = None, after: _After = None
    ) -> RecvInfo: ...
    def irecv(self, buffer: _Buffer, *, layout: Layout | None = None, after: _After = None) -> Request: ...

@final
class Memory(_Closing):
    @staticmethod
    def allocate(
        context: Context, length: int, *, access: str = "rwa", huge_pages: bool = False, place: str = "host"
    ) -> Memory: ...
    @staticmethod
    def register(context: Context, buffer: _Buffer, *, access: str = "rwa") -> Memory: ...
    def export(self, offset: int = 0, length: int | None = None, *, access: str | None = None) -> bytes: ...
    @property
    def address(self) -> int: ...
    @property
    def place(self) -> str: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def release(self) -> None: ...
    @property
    def released(self) -> bool: ...

@final
class Blocks:
    def __init__(
        self,
        context: Context,
        ranges: Iterable[tuple[Memory | _Buffer, int, int] | tuple[Memory | _Buffer, int, int, int]],
        length: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def length(self) -> int: ...
    def export(self, *, access: str = "") -> bytes: ...
    def close(self) -> None: ...

@final
class RemoteBlocks:
    def __init__(self, endpoint: Endpoint, key: bytes) -> None: ...
    def __len__(self) -> int: ...
    @property
    def length(self) -> int: ...
    def release(self) -> None: ...

@final
class RemoteMemory:
    def __init__(self, endpoint: Endpoint, key: bytes) -> None: ...
    def __len__(self) -> int: ...
    def map(self) -> memoryview: ...
    def explain(self, verb: str = "put", length: int = 8, *, buffer: _Buffer | None = None) -> str: ...
    def release(self) -> None: ...

@final
class Window(_Closing):
    def __init__(
        self,
        worker: Worker,
        peers: Sequence[Endpoint | None],
        memory: Memory,
        exchange: _Exchange,
        *,
        timeout: float | None = None,
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def view(self, rank: int) -> memoryview: ...
    def remote(self, rank: int) -> RemoteMemory: ...
    def endpoint(self, rank: int) -> Endpoint: ...
    def bind(self, place: str) -> BoundWindow: ...
    def register_on(self, queue: Queue) -> None: ...
    def check(self) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

@final
class Group(_Closing):
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def worker(self) -> Worker: ...
    @property
    def context(self) -> Context: ...
    def endpoint(self, rank: int) -> Endpoint: ...
    def barrier(self, *, algorithm: str | None = None, timeout: float | None = None) -> None: ...
    def explain(
        self,
        collective: str,
        count: int,
        *,
        dtype: Any = "uint8",
        repeatable: bool = False,
        algorithm: str | None = None,
        commutative: bool = True,
        on: Queue | Plan | None = None,
    ) -> str: ...
    def ibarrier(self, *, algorithm: str | None = None) -> Request: ...
    def broadcast(
        self, buffer: _Buffer, root: int = 0, *, dtype: Any = None, algorithm: str | None = None, timeout: float | None = None
    ) -> None: ...
    def ibroadcast(self, buffer: _Buffer, root: int = 0, *, dtype: Any = None, algorithm: str | None = None) -> Request: ...
    def reduce(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        root: int = 0,
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
        timeout: float | None = None,
    ) -> None: ...
    def ireduce(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        root: int = 0,
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
    ) -> Request: ...
    def allreduce(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
        timeout: float | None = None,
    ) -> None: ...
    def iallreduce(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
    ) -> Request: ...
    def reduce_scatter(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
        timeout: float | None = None,
    ) -> None: ...
    def ireduce_scatter(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
    ) -> Request: ...
    def reduce_scatterv(
        self,
        send: _Buffer,
        recv: _Buffer | None,
        counts: Iterable[int],
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
        timeout: float | None = None,
    ) -> None: ...
    def ireduce_scatterv(
        self,
        send: _Buffer,
        recv: _Buffer | None,
        counts: Iterable[int],
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
    ) -> Request: ...
    def allgather(
        self,
        send: _Buffer | None,
        recv: _Buffer,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def iallgather(
        self, send: _Buffer | None, recv: _Buffer, *, dtype: Any = None, algorithm: str | None = None
    ) -> Request: ...
    def allgatherv(
        self,
        send: _Buffer | None,
        recv: _Buffer,
        counts: Iterable[int],
        offsets: Iterable[int] | None = None,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def iallgatherv(
        self,
        send: _Buffer | None,
        recv: _Buffer,
        counts: Iterable[int],
        offsets: Iterable[int] | None = None,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
    ) -> Request: ...
    def gather(
        self,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def igather(
        self,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
    ) -> Request: ...
    def gatherv(
        self,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        counts: Iterable[int] | None = None,
        offsets: Iterable[int] | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def igatherv(
        self,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        counts: Iterable[int] | None = None,
        offsets: Iterable[int] | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
    ) -> Request: ...
    def scatter(
        self,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def iscatter(
        self,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
    ) -> Request: ...
    def scatterv(
        self,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        counts: Iterable[int] | None = None,
        offsets: Iterable[int] | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def iscatterv(
        self,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        counts: Iterable[int] | None = None,
        offsets: Iterable[int] | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
    ) -> Request: ...
    def alltoall(
        self,
        send: _Buffer | None,
        recv: _Buffer,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def ialltoall(self, send: _Buffer | None, recv: _Buffer, *, dtype: Any = None, algorithm: str | None = None) -> Request: ...
    def alltoallv(
        self,
        send: _Buffer,
        send_counts: Iterable[int],
        recv: _Buffer,
        recv_counts: Iterable[int],
        *,
        send_offsets: Iterable[int] | None = None,
        recv_offsets: Iterable[int] | None = None,
        dtype: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def ialltoallv(
        self,
        send: _Buffer,
        send_counts: Iterable[int],
        recv: _Buffer,
        recv_counts: Iterable[int],
        *,
        send_offsets: Iterable[int] | None = None,
        recv_offsets: Iterable[int] | None = None,
        dtype: Any = None,
        algorithm: str | None = None,
    ) -> Request: ...
    def scan(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
        timeout: float | None = None,
    ) -> None: ...
    def iscan(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
    ) -> Request: ...
    def exclusive_scan(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
        timeout: float | None = None,
    ) -> None: ...
    def iexclusive_scan(
        self,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: _Reduction = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        commutative: bool = True,
    ) -> Request: ...
    def exchange(self, mine: bytes) -> list[bytes]: ...
    def duplicate(self) -> Group: ...
    def split(self, color: int | None, key: int = 0) -> Group | None: ...
    def split_by(self, what: Literal["host", "numa", "devices"], key: int = 0) -> Group: ...
    def lost(self) -> list[int]: ...
    def shrink(self) -> Group: ...
    def window(self, memory: Memory, *, timeout: float | None = None) -> Window: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

def init(
    *,
    store: str | None = None,
    rank: int | None = None,
    count: int | None = None,
    job_key: bytes | None = None,
    transports: str | None = None,
    interfaces: str | None = None,
    tls: bool = False,
    threads: Literal["single", "multi"] = "single",
    progress: Literal["caller", "thread"] = "caller",
    timeout: float | None = None,
) -> Group: ...

@final
class BoundWindow:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def bases(self) -> int: ...
    @property
    def abort_flag(self) -> int: ...
    @property
    def failure(self) -> int: ...
    @property
    def abort(self) -> int: ...
    @property
    def limit(self) -> float: ...
    def __bytes__(self) -> bytes: ...

@final
class Queue(_Closing):
    def __init__(
        self, context: Context, place: str = "host", *, stream: _Stream | None = None, waits: str = "auto"
    ) -> None: ...
    @property
    def native(self) -> int: ...
    def __cuda_stream__(self) -> tuple[int, int]: ...
    def call(self, function: Callable[[], object]) -> None: ...
    def synchronize(self) -> None: ...
    def check(self) -> None: ...
    def uses(self, buffer: object) -> bool: ...
    def begin_capture(self) -> None: ...
    def end_capture(self) -> Graph: ...
    def close(self) -> None: ...

@final
class Graph:
    def launch(self, queue: Queue) -> None: ...
    def close(self) -> None: ...

@final
class ChannelEnd(_Closing):
    @property
    def address(self) -> int: ...
    @property
    def guard(self) -> bytes: ...
    @property
    def recv_buffers(self) -> tuple[int, ...]: ...
    def explain(self) -> str: ...
    def check(self) -> None: ...
    def release(self) -> None: ...
    @property
    def released(self) -> bool: ...

@final
class Plan(_Closing):
    def __init__(
        self,
        context: Context,
        *,
        place: str | None = None,
        timeout: float | None = None,
        blocks: int = 0,
        chunk_bytes: int = 0,
    ) -> None: ...
    def send(
        self, peer: Endpoint, buffer: _Buffer, channel: int = 0, *, layout: Layout | None = None, after: Iterable[int] = ()
    ) -> int: ...
    def recv(
        self, peer: Endpoint, buffer: _Buffer, channel: int = 0, *, layout: Layout | None = None, after: Iterable[int] = ()
    ) -> int: ...
    def put(
        self,
        buffer: _Buffer,
        remote: RemoteMemory,
        offset: int = 0,
        *,
        signal: RemoteSignal | None = None,
        value: int = 1,
        increment: int = 0,
        layout: Layout | None = None,
        remote_layout: Layout | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def get(
        self,
        buffer: _Buffer,
        remote: RemoteMemory,
        offset: int = 0,
        *,
        layout: Layout | None = None,
        remote_layout: Layout | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def signal(self, signal: RemoteSignal, value: int = 1, *, increment: int = 0, after: Iterable[int] = ()) -> int: ...
    def wait(
        self, signal: Signal, value: int, compare: str = ">=", *, increment: int = 0, after: Iterable[int] = ()
    ) -> int: ...
    def copy(
        self,
        to: _Buffer,
        source: _Buffer,
        *,
        layout: Layout | None = None,
        to_layout: Layout | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def reduce(
        self,
        to: _Buffer,
        sources: Sequence[_Buffer | tuple[RemoteMemory, int]],
        op: str = "sum",
        *,
        dtype: Any = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def barrier(self, group: Group, /, *, algorithm: str | None = None, after: Iterable[int] = ()) -> int: ...
    def broadcast(
        self,
        group: Group,
        /,
        buffer: _Buffer,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def reduce_to_root(
        self,
        group: Group,
        /,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: str = "sum",
        root: int = 0,
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def allreduce(
        self,
        group: Group,
        /,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: str = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def reduce_scatter(
        self,
        group: Group,
        /,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: str = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def reduce_scatterv(
        self,
        group: Group,
        /,
        send: _Buffer,
        recv: _Buffer | None,
        counts: Iterable[int],
        op: str = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def allgather(
        self,
        group: Group,
        /,
        send: _Buffer | None,
        recv: _Buffer,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def allgatherv(
        self,
        group: Group,
        /,
        send: _Buffer | None,
        recv: _Buffer,
        counts: Iterable[int],
        offsets: Iterable[int] | None = None,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def gather(
        self,
        group: Group,
        /,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def gatherv(
        self,
        group: Group,
        /,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        counts: Iterable[int] | None = None,
        offsets: Iterable[int] | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def scatter(
        self,
        group: Group,
        /,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def scatterv(
        self,
        group: Group,
        /,
        send: _Buffer | None,
        recv: _Buffer | None = None,
        counts: Iterable[int] | None = None,
        offsets: Iterable[int] | None = None,
        root: int = 0,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def alltoall(
        self,
        group: Group,
        /,
        send: _Buffer | None,
        recv: _Buffer,
        *,
        dtype: Any = None,
        algorithm: str | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def alltoallv(
        self,
        group: Group,
        /,
        send: _Buffer,
        send_counts: Iterable[int],
        recv: _Buffer,
        recv_counts: Iterable[int],
        *,
        send_offsets: Iterable[int] | None = None,
        recv_offsets: Iterable[int] | None = None,
        dtype: Any = None,
        algorithm: str | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def scan(
        self,
        group: Group,
        /,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: str = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def exclusive_scan(
        self,
        group: Group,
        /,
        send: _Buffer,
        recv: _Buffer | None = None,
        op: str = "sum",
        *,
        dtype: Any = None,
        repeatable: bool = False,
        algorithm: str | None = None,
        scale: float | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def atomic(
        self,
        op: str,
        remote: RemoteMemory,
        offset: int,
        operand: int,
        *,
        compare: int = 0,
        size: int = 8,
        result: _Buffer | None = None,
        after: Iterable[int] = (),
    ) -> int: ...
    def prepare(self, timeout: float | None = None) -> None: ...
    def trigger(self, on: Queue | _Stream | None = None) -> None: ...
    def test(self) -> bool: ...
    def finish(self, timeout: float | None = None) -> None: ...
    def run(self, timeout: float | None = None) -> None: ...
    def update(self, step: int, buffer: _Buffer | None = None, value: int | None = None) -> None: ...
    def explain(self) -> str: ...
    def close(self) -> None: ...

@final
class Layout:
    @staticmethod
    def strided(block: int, count: Sequence[int], stride: Sequence[int]) -> Layout: ...
    @staticmethod
    def subarray(
        shape: Sequence[int], extent: Sequence[int], start: Sequence[int], element: int, order: Literal["C", "F"] = "C"
    ) -> Layout: ...
    @staticmethod
    def pieces(pieces: Sequence[tuple[int, int]]) -> Layout: ...
    @staticmethod
    def callbacks(
        *,
        size: Callable[[Any], int],
        pack: Callable[[Any, int, memoryview], int] | None = None,
        unpack: Callable[[Any, int, memoryview], object] | None = None,
    ) -> Layout: ...
    @property
    def bytes(self) -> int: ...
    @property
    def extent(self) -> tuple[int, int]: ...

@final
class Signal:
    def __init__(
        self,
        worker: Worker,
        kind: Literal["set", "add"] = "set",
        initial: int = 0,
        *,
        memory: Memory | None = None,
        offset: int = 0,
    ) -> None: ...
    def export(self) -> bytes: ...
    @property
    def value(self) -> int: ...
    def test(self, value: int, compare: str = ">=") -> bool: ...
    def wait(self, value: int, compare: str = ">=", timeout: float | None = None) -> None: ...
    def reset(self, value: int = 0) -> None: ...
    def close(self) -> None: ...

@final
class RemoteSignal:
    def __init__(self, endpoint: Endpoint, key: bytes, kind: Literal["set", "add"] = "set") -> None: ...
    def post(
        self,
        value: int = 1,
        *,
        after_all: bool = False,
        visible: bool = False,
        no_wait: bool = False,
        immediate: int | None = None,
        handler: int | None = None,
    ) -> None: ...
    def ipost(
        self,
        value: int = 1,
        *,
        after_all: bool = False,
        visible: bool = False,
        no_wait: bool = False,
        immediate: int | None = None,
        handler: int | None = None,
    ) -> Request: ...
    def release(self) -> None: ...

@final
class Block:
    def __init__(self, length: int) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class _Store(_Closing):
    def __init__(
        self,
        address: str | None,
        job_key: bytes | None,
        timeout: float | None,
        rank: int | None,
        count: int | None,
        tls: bool,
    ) -> None: ...
    @property
    def address(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def count(self) -> int: ...
    def put(self, key: str, value: _Buffer) -> None: ...
    def get(self, key: str, default: bytes | None) -> bytes | None: ...
    def wait(self, key: str) -> bytes: ...
    def exchange(self, mine: bytes, count: int) -> list[bytes]: ...
    def barrier(self) -> None: ...
    def close(self) -> None: ...

class _Mapping: ...
class _WindowPart: ...
