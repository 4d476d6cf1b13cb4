# SPDX-License-Identifier: Apache-2.0
"""Thalweg moves bytes between any two memories on the fastest path.

init() makes the processes that were started together a Group.

Blocking calls are the methods of this module's Endpoint and Worker (and i-forms that return a Request); thalweg.aio has the
same names as coroutines; thalweg.Pipe carries objects between two processes. Lengths and offsets are bytes, times seconds.
Buffers are any object with the buffer protocol, DLPack or __cuda_array_interface__ (NumPy, PyTorch, CuPy, Numba, Memory), on
the host or on a device, used without a copy and kept alive until the operation ends.
"""

import pathlib as _pathlib

from . import aio, errors
from ._core import (
    AM_HEADER_SHORT,
    ANY_TAG_MASK,
    FULL_TAG_MASK,
    PRIVATE_MAX,
    AmMessage,
    Blocks,
    BoundWindow,
    ChannelEnd,
    CompletionQueue,
    ConnectionRequest,
    Context,
    Counter,
    Endpoint,
    Graph,
    Group,
    Layout,
    Listener,
    Memory,
    Message,
    Plan,
    Queue,
    RecvInfo,
    RemoteBlocks,
    RemoteMemory,
    RemoteSignal,
    Request,
    Signal,
    Window,
    Worker,
    __version__,
    allgather_on,
    allgatherv_on,
    allreduce_on,
    alltoall_on,
    alltoallv_counted_on,
    alltoallv_on,
    barrier_on,
    bind_recv,
    bind_send,
    broadcast_on,
    copy,
    copy_on,
    costs_save,
    describe,
    exclusive_scan_on,
    gather_on,
    gatherv_on,
    get_on,
    init,
    memory_query,
    put_on,
    recv_on,
    reduce_on,
    reduce_scatter_on,
    reduce_scatterv_on,
    reduce_to_root_on,
    scan_on,
    scatter_on,
    scatterv_on,
    send_on,
    signal_on,
    status_name,
    stream_check,
    wait_on,
)
from ._signatures import install as _install_signatures
from ._topology import Distance, Placement, Topology, topology
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .logs import start as _start_log
from .objects import recv_object, send_object
from .pipe import Pipe, PipeEnd
from .store import Store
from .waiting import wait_all, wait_any

_start_log()
_install_signatures()


def get_include() -> str:
    """The folder for a compiler's -I: kernels include <thalweg/device/window.hpp> and its neighbours from there."""
    return str(_pathlib.Path(__file__).parent / "include")


__all__ = [
    "AM_HEADER_SHORT",
    "ANY_TAG_MASK",
    "FULL_TAG_MASK",
    "PRIVATE_MAX",
    "AmMessage",
    "Blocks",
    "BoundWindow",
    "ChannelEnd",
    "ConnectionRequest",
    "CompletionQueue",
    "Context",
    "Counter",
    "Distance",
    "Endpoint",
    "Graph",
    "Group",
    "Layout",
    "Listener",
    "Memory",
    "Message",
    "Pipe",
    "PipeEnd",
    "Placement",
    "Plan",
    "Queue",
    "RecvInfo",
    "RemoteBlocks",
    "RemoteMemory",
    "RemoteSignal",
    "Request",
    "Signal",
    "Store",
    "Topology",
    "Window",
    "Worker",
    "__version__",
    "aio",
    "allgather_on",
    "allgatherv_on",
    "allreduce_on",
    "alltoall_on",
    "alltoallv_counted_on",
    "alltoallv_on",
    "barrier_on",
    "bind_recv",
    "bind_send",
    "broadcast_on",
    "copy",
    "copy_on",
    "costs_save",
    "describe",
    "errors",
    "exclusive_scan_on",
    "gather_on",
    "gatherv_on",
    "get_include",
    "get_on",
    "init",
    "memory_query",
    "put_on",
    "recv_object",
    "recv_on",
    "reduce_on",
    "reduce_scatter_on",
    "reduce_scatterv_on",
    "reduce_to_root_on",
    "scan_on",
    "scatter_on",
    "scatterv_on",
    "send_object",
    "send_on",
    "signal_on",
    "status_name",
    "stream_check",
    "topology",
    "wait_all",
    "wait_any",
    "wait_on",
    *_errors,
]
