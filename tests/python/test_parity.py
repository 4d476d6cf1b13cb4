# SPDX-License-Identifier: Apache-2.0
"""The Python package has every function of the C headers, every argument and every option; what differs stands here with the
reason. A function, a parameter, an option's field or a flag that C gains fails until it is in Python or in one of these
tables."""

import inspect
import pathlib
import re

import pytest
import thalweg as tw
from thalweg import _core, aio

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include" / "thalweg"

# ------------------------------------------------------------------------------------------- what differs, and why

WAITS = "Python waits, or returns a Request to wait for or to await"
OBJECT = "the object has it"
ENDS = "dropping the object, close() or release() ends it"
BUFFER = "the buffer has it"
GIVEN = "returned"
REDUCTIONS = ["reduce", "allreduce", "reduce_scatter", "reduce_scatterv", "scan", "exclusive_scan"]
EXCHANGES = ["allgather", "allgatherv", "gather", "gatherv", "scatter", "scatterv", "alltoall", "alltoallv"]
COLLECTIVES = ["barrier", "broadcast", *REDUCTIONS, *EXCHANGES]
PLANNED = [f"tw_plan_{name}" for name in COLLECTIVES if name != "reduce"] + ["tw_plan_reduce_to_root"]
ENQUEUED = [f"tw_{name}_on" for name in COLLECTIVES if name != "reduce"] + ["tw_reduce_to_root_on"]
CHOOSING = [*(f"tw_{name}" for name in COLLECTIVES), "tw_group_explain", "tw_group_explain_on"]
NOT_IN_PYTHON = {
    "tw_version": "thalweg.__version__",
    "tw_version_string": "thalweg.__version__",
    "tw_last_error": "the exception's text",
    "tw_set_log_handler": "Python's logging",
    "tw_window_drop": ENDS,
    "tw_set_interrupt": "the package sets it, for Ctrl-C",
    "tw_wait_began": "the package calls it: its own waits are in the timeline",
    "tw_wait_ended": "the package calls it, too",
    "tw_memory_kind_name": "memory_query gives the name",
    "tw_worker_context": OBJECT,
    "tw_group_create": "Group.split and duplicate make them of the world; an exchange of one's own takes Window",
    "tw_group_yield_worker": "the world's worker and context are objects",
    "tw_endpoint_set_user": OBJECT,
    "tw_endpoint_user": OBJECT,
    "tw_allocate": "Memory.allocate",
    "tw_free": "Memory.release",
    "tw_am_release": "dropping the AmMessage",
    "tw_send_blocking": "Endpoint.send waits",
    "tw_recv_blocking": "Worker.recv waits",
    "tw_request_info": GIVEN + " by Request.wait",
    "tw_request_message": "the exception's text",
    "tw_channel_end_recv_buffer": "ChannelEnd.recv_buffers has all",
    "tw_plan_trigger_stream": "Plan.trigger takes streams",
    "tw_endpoint_explain_buffer": "Endpoint.explain(buffer=) and RemoteMemory.explain(buffer=)",
    "tw_store_rank": "Store.rank",
    "tw_store_count": "Store.count",
    "tw_request_release": ENDS,
    "tw_completion_test": "a Request is the record",
}
# What an argument of C is in Python, where its name is another one; None: it is none there.
SAME_EVERYWHERE = {
    "request": None,  # WAITS
    "step": None,  # GIVEN: its number
    "length": None,  # BUFFER
    "key_length": None,
    "header_length": None,
    "capacity": None,
    "timeout_ns": "timeout",
    "from": "source",
    "endpoint": "peer",
}
ARGUMENTS = {
    "tw_context_info": {"buffer": None, "size": None},
    "tw_context_counters": {"buffer": None, "size": None},
    "tw_costs_save": {"file": None, "size": None},
    "tw_worker_address": {"address": None, "size": None},
    "tw_worker_fd": {"fd": None},
    "tw_listener_next": {"request": None},
    "tw_endpoint_close": {"mode": "force"},
    "tw_endpoint_explain": {"size": None, "buffer": None, "length": "length"},
    "tw_remote_memory_explain": {"size": None, "buffer": None, "length": "length"},
    "tw_plan_explain": {"size": None, "buffer": None},
    "tw_memory_query": {"address": "buffer", "info": None},
    "tw_memory_register": {"address": "buffer"},
    "tw_memory_allocate": {"length": "length"},
    "tw_memory_export_range": {"key": None, "size": None, "length": "length"},
    "tw_memory_export": {"key": None, "size": None},
    "tw_memory_import": {"endpoint": "endpoint"},
    "tw_remote_memory_map": {"address": None},
    "tw_layout_strided": {"dimensions": None},
    "tw_layout_subarray": {"dimensions": None},
    "tw_layout_pieces": {"count": None},
    "tw_layout_extent": {"first": None, "last": None},
    "tw_request_test_any": {"count": None, "index": None},
    "tw_request_wait_any": {"count": None, "index": None},
    "tw_request_wait": {},
    "tw_request_finish_all": {"count": None},
    "tw_probe": {"info": None, "message": "take"},
    "tw_am_register": {"arg": None},
    "tw_atomic": {"result": "fetch"},
    "tw_signal_export": {"key": None, "size": None},
    "tw_signal_import": {"endpoint": "endpoint"},
    "tw_store_get": {"value": None, "size": None},
    "tw_store_wait": {"value": None, "size": None},
    "tw_store_exchange": {"values": None},
    "tw_blocks_create": {"range_count": None, "length": "length"},
    "tw_blocks_export": {"key": None, "size": None},
    "tw_blocks_import": {"endpoint": "endpoint"},
    "tw_put_blocks": {"n": None},
    "tw_get_blocks": {"n": None},
    "tw_worker_next_notification": {"notification": None},
    "tw_completion_queue_poll": {"entries": None, "taken": None},
    "tw_completion_queue_wait": {"entries": None, "taken": None},
    "tw_counter_read": {"completed": None, "failed": None},
    "tw_channel_bind_recv": {"count": None},
    "tw_channel_end_address": {"address": None},
    "tw_channel_end_guard": {"guard": None},
    "tw_channel_end_explain": {"size": None, "buffer": None},
    "tw_queue_call": {"fn": "function", "arg": None},
    "tw_queue_uses": {"address": "buffer", "length": None, "in_use": None},
    "tw_plan_trigger": {"queue": "on"},
    "tw_plan_update": {"address": "buffer"},
    "tw_plan_put": {"endpoint": None},  # the RemoteMemory's, as of those below
    "tw_plan_get": {"endpoint": None},
    "tw_plan_atomic": {"endpoint": None},
    "tw_plan_reduce": {"source_count": None, "count": None, "type": "dtype"},  # of the buffers
    "tw_reduce_on": {"source_count": None, "count": None, "type": "dtype"},
    "tw_put_on": {"endpoint": None},
    "tw_get_on": {"endpoint": None},
    "tw_window_create": {"endpoints": "peers", "rank": None, "size": None, "arg": None},  # by the None among the peers
    "tw_window_address": {"address": None},
    "tw_window_remote": {"remote": None},
    "tw_window_bind": {"bound": None},
    **{f"tw_{name}": {"count": None, "type": "dtype"} for name in COLLECTIVES},  # counts are of the buffers
    **{name: {"count": None, "type": "dtype"} for name in [*PLANNED, *ENQUEUED]},
    **{name: {"send_count": None, "type": "dtype"} for name in ["tw_gatherv", "tw_gatherv_on", "tw_plan_gatherv"]},
    **{name: {"recv_count": None, "type": "dtype"} for name in ["tw_scatterv", "tw_scatterv_on", "tw_plan_scatterv"]},
    "tw_alltoallv_counted_on": {"send_capacity": None, "recv_capacity": None},  # of the buffers
    "tw_group_endpoint": {"endpoint": None},
    "tw_group_explain": {"type": "dtype", "buffer": None, "size": None},
    "tw_group_explain_on": {"queue": "on", "group": None, "type": "dtype", "buffer": None, "size": None},
    "tw_group_exchange": {"group": None, "values": None},
    "tw_topology_json": {"buffer": None, "size": None},
    "tw_topology_place": {"placement": None},
    "tw_topology_distance": {"distance": None},
    "tw_group_lost": {"ranks": None, "count": None},
}
# Where the functions are.
CALLS = {
    **{f"tw_{name}": [f"Group.{name}", f"Group.i{name}"] for name in COLLECTIVES},
    "tw_group_explain_on": ["Group.explain"],
    "tw_blocks_create": ["Blocks"],
    "tw_blocks_count": ["Blocks.__len__"],
    "tw_blocks_length": ["Blocks.length"],
    "tw_blocks_export": ["Blocks.export"],
    "tw_blocks_import": ["RemoteBlocks"],
    "tw_remote_blocks_count": ["RemoteBlocks.__len__"],
    "tw_remote_blocks_length": ["RemoteBlocks.length"],
    "tw_put_blocks": ["Endpoint.put_blocks", "Endpoint.iput_blocks"],
    "tw_get_blocks": ["Endpoint.get_blocks", "Endpoint.iget_blocks"],
    "tw_worker_next_notification": ["Worker.next_notification"],
    "tw_completion_queue_create": ["CompletionQueue"],
    "tw_completion_queue_poll": ["CompletionQueue.poll"],
    "tw_completion_queue_wait": ["CompletionQueue.wait"],
    "tw_counter_create": ["Counter"],
    "tw_counter_read": ["Counter.completed", "Counter.failed"],
    "tw_counter_wait": ["Counter.wait"],
    "tw_request_tell": ["Request.tell"],
    "tw_channel_bind_send": ["bind_send"],
    "tw_channel_bind_recv": ["bind_recv"],
    "tw_channel_end_address": ["ChannelEnd.address"],
    "tw_channel_end_guard": ["ChannelEnd.guard"],
    "tw_channel_end_check": ["ChannelEnd.check"],
    "tw_channel_end_explain": ["ChannelEnd.explain"],
    "tw_memory_query": ["memory_query"],
    "tw_memory_copy": ["copy"],
    "tw_queue_create": ["Queue"],
    "tw_queue_wrap": ["Queue"],
    "tw_queue_native": ["Queue.native"],
    "tw_stream_check": ["stream_check"],
    "tw_queue_begin_capture": ["Queue.begin_capture"],
    "tw_queue_end_capture": ["Queue.end_capture"],
    "tw_graph_launch": ["Graph.launch"],
    "tw_plan_create": ["Plan"],
    "tw_status_name": ["status_name"],
    "tw_context_create": ["Context"],
    "tw_costs_save": ["costs_save"],
    "tw_worker_create": ["Worker"],
    "tw_worker_progress": ["Worker.progress"],
    "tw_worker_fd": ["Worker.fileno"],
    "tw_worker_flush": ["Worker.flush", "Worker.iflush"],
    "tw_listen": ["Worker.listen"],
    "tw_connection_request_data": ["ConnectionRequest.data"],
    "tw_connection_request_peer": ["ConnectionRequest.peer"],
    "tw_accept": ["ConnectionRequest.accept", "Listener.accept"],
    "tw_reject": ["ConnectionRequest.reject"],
    "tw_connect": ["Worker.connect"],
    "tw_connect_to": ["Worker.connect"],
    "tw_endpoint_wait": ["Endpoint.wait"],
    "tw_endpoint_close": ["Endpoint.close", "Endpoint.iclose"],
    "tw_memory_export_range": ["Memory.export"],
    "tw_memory_length": ["Memory.__len__"],
    "tw_memory_import": ["RemoteMemory"],
    "tw_remote_memory_length": ["RemoteMemory.__len__"],
    "tw_remote_memory_explain": ["RemoteMemory.explain"],
    "tw_remote_memory_map": ["RemoteMemory.map"],
    "tw_layout_pieces": ["Layout.pieces"],
    "tw_request_test": ["Request.done"],
    "tw_request_test_any": ["wait_any"],
    "tw_request_wait_any": ["wait_any"],
    "tw_request_wait": ["Request.wait"],
    "tw_request_before": ["Request.before"],
    "tw_request_finish": ["Request.wait"],
    "tw_request_cancel": ["Request.cancel"],
    "tw_request_finish_all": ["wait_all"],
    "tw_send": ["Endpoint.send", "Endpoint.isend"],
    "tw_recv": ["Worker.recv", "Worker.irecv"],
    "tw_probe": ["Worker.probe"],
    "tw_message_recv": ["Message.recv", "Message.irecv"],
    "tw_am_register": ["Worker.am_register"],
    "tw_am_send": ["Endpoint.am_send", "Endpoint.iam_send"],
    "tw_am_recv": ["AmMessage.recv", "AmMessage.irecv"],
    "tw_bytes_send": ["Endpoint.bytes_send", "Endpoint.ibytes_send"],
    "tw_bytes_recv": ["Endpoint.bytes_recv", "Endpoint.ibytes_recv"],
    "tw_put": ["Endpoint.put", "Endpoint.iput"],
    "tw_get": ["Endpoint.get", "Endpoint.iget"],
    "tw_endpoint_flush": ["Endpoint.flush", "Endpoint.iflush"],
    "tw_endpoint_fence": ["Endpoint.fence"],
    "tw_atomic": ["Endpoint.atomic", "Endpoint.iatomic"],
    "tw_signal_create": ["Signal"],
    "tw_signal_import": ["RemoteSignal"],
    "tw_signal_read": ["Signal.value"],
    "tw_signal_post": ["RemoteSignal.post", "RemoteSignal.ipost"],
    "tw_store_open": ["Store"],
    "tw_window_create": ["Window"],
    "tw_window_length": ["Window.__len__"],
    "tw_window_address": ["Window.view"],
}
BY_NAME = {  # tw_<prefix>_<method> is <class>.<method>, or a function of the package
    "context": "Context",
    "worker": "Worker",
    "listener": "Listener",
    "endpoint": "Endpoint",
    "memory": "Memory",
    "layout": "Layout",
    "signal": "Signal",
    "store": "Store",
    "queue": "Queue",
    "plan": "Plan",
    "window": "Window",
    "group": "Group",
    "topology": "Topology",
}
TRANSFERS = ["tw_put", "tw_get"]
ONE_SIDED = [*TRANSFERS, "tw_atomic", "tw_signal_post"]
RECEIVES = ["tw_recv", "tw_message_recv", "tw_am_recv"]
STEPS = ["tw_plan_send", "tw_plan_recv", "tw_plan_put", "tw_plan_get"]
QUEUED = ["tw_send_on", "tw_recv_on", "tw_put_on", "tw_get_on"]
BLOCKS = ["tw_put_blocks", "tw_get_blocks"]
OF_REDUCTIONS = [f"tw_{name}" for name in REDUCTIONS]
PLANNED_REDUCTIONS = [
    form.format("reduce_to_root" if name == "reduce" else name) for name in REDUCTIONS for form in ("tw_plan_{}", "tw_{}_on")
]
# Fields of option structs: the parameter, and the functions where they mean something; None: Python has it in another way.
OPTIONS = {
    "tw_op_options": {
        "flags": None,  # one by one in FLAGS
        "layout": ("layout", ["tw_send", "tw_am_send", *RECEIVES, *TRANSFERS, *STEPS, *QUEUED, "tw_plan_copy"]),
        "remote_layout": ("remote_layout", [*TRANSFERS, "tw_plan_put", "tw_plan_get", "tw_put_on", "tw_get_on"]),
        "reserved": None,
        "immediate": ("immediate", ["tw_send", "tw_put", "tw_signal_post"]),
        "notify": None,  # by immediate and handler
        "handler": ("handler", ["tw_put", "tw_signal_post"]),
        "queue": ("queue", ["tw_request_tell"]),  # of every Request
        "counter": ("counter", ["tw_request_tell"]),
        "record": None,  # a Request is one
        "done": ("signal", ["tw_request_tell"]),
        "done_value": ("value", ["tw_request_tell"]),
        "signal": ("signal", ["tw_put", "tw_plan_put", "tw_put_on"]),
        "signal_op": None,  # of the RemoteSignal's kind
        "signal_value": ("value", ["tw_put", "tw_plan_put", "tw_put_on"]),
        "source": ("source", ["tw_recv", "tw_probe"]),
        "callback": None,  # WAITS
        "arg": None,
        "after": ("after", ["tw_send", "tw_am_send", *RECEIVES, *TRANSFERS]),
        "after_kind": None,  # by what `after` is
        "increment": ("increment", ["tw_plan_put", "tw_plan_signal", "tw_plan_wait"]),
        "after_steps": (
            "after",
            [*STEPS, "tw_plan_signal", "tw_plan_wait", "tw_plan_atomic", "tw_plan_copy", "tw_plan_reduce"],
        ),
        "after_count": None,  # BUFFER
    },
    "tw_blocks_options": {
        "flags": None,
        "notify": None,  # by notification and handler
        "notification": ("notification", BLOCKS),
        "notification_length": None,  # BUFFER
        "handler": ("handler", BLOCKS),
        "signal_op": None,
        "signal": ("signal", ["tw_put_blocks"]),
        "signal_value": ("value", ["tw_put_blocks"]),
        "callback": None,
        "arg": None,
        "queue": None,  # Request.tell
        "counter": None,
        "record": None,
        "done": None,
        "done_value": None,
    },
    "tw_collective_options": {
        "flags": ("repeatable", [*OF_REDUCTIONS, *PLANNED_REDUCTIONS]),  # TW_COLLECTIVE_REPEATABLE
        "algorithm": ("algorithm", [*CHOOSING, *PLANNED, *ENQUEUED]),  # counts in device memory have one
        "commutative": ("commutative", OF_REDUCTIONS),
        "scale": ("scale", OF_REDUCTIONS),
        "reduce": ("op", OF_REDUCTIONS),
        "reduce_arg": None,  # of a closure
        "after_steps": ("after", PLANNED),
        "after_count": None,
        "timeout_ns": ("timeout", [f"tw_{name}" for name in COLLECTIVES]),
        "callback": None,  # WAITS
        "arg": None,
        "queue": None,  # Request.tell
        "counter": None,
        "record": None,
        "done": None,
        "done_value": None,
    },
    "tw_context_options": {
        "job_key_length": None,
        "silent_timeout_ns": "silent_timeout",
        "handshake_timeout_ns": "handshake_timeout",
        "persistent_idle_ns": "persistent_idle",
    },
    "tw_worker_options": {},
    "tw_listener_options": {"on_request": None, "arg": None},  # Listener.next and accept
    "tw_endpoint_options": {
        "private_data": "data",
        "private_length": None,
        "timeout_ns": ("timeout", ["tw_connect", "tw_connect_to"]),  # an accepted one has its client's
        "on_lost": None,  # every operation and Endpoint.state tell
        "arg": None,
        "transport": "transport",
        "tls": ("tls", ["tw_connect", "tw_connect_to"]),  # as its client asked
    },
    "tw_memory_options": {
        "access": "access",
        "huge_pages": ("huge_pages", ["tw_memory_allocate"]),
        "place": ("place", ["tw_memory_allocate"]),
    },
    "tw_layout_callbacks_options": {
        "arg": None,  # of a closure
        "start": None,  # the functions get the buffer
        "packed_size": "size",
        "finish": None,
        "destroy": None,
    },
    "tw_completion_queue_options": {"reserved": None},
    "tw_signal_options": {},
    "tw_store_options": {"job_key_length": None, "timeout_ns": "timeout"},
    "tw_queue_options": {},
    "tw_plan_options": {"timeout_ns": "timeout"},
    "tw_channel_options": {"timeout_ns": "timeout", "message_bytes": ("message_bytes", ["tw_channel_bind_send"])},
    "tw_window_options": {"timeout_ns": "timeout"},
    "tw_group_options": {"timeout_ns": None},  # the world's
    "tw_init_options": {
        "context": "transports",
        "worker": "progress",
        "timeout_ns": "timeout",
    },  # what others have: the environment
}
EXTRA = {("tw_plan_copy", "to_layout"), ("tw_queue_create", "stream")}  # of one function only
FLAGS = {
    "TW_OP_SYNC": ("sync", ["tw_send"]),
    "TW_OP_NO_WAIT": ("no_wait", ["tw_send", "tw_am_send", "tw_bytes_send", *ONE_SIDED, *BLOCKS]),
    "TW_OP_REMOTE": ("visible", ["tw_put", "tw_atomic", "tw_signal_post", "tw_put_blocks"]),
    "TW_OP_AFTER_ALL": ("after_all", ["tw_put", "tw_signal_post", "tw_put_blocks"]),
    "TW_OP_WAIT_ALL": ("all", ["tw_bytes_recv"]),
    "TW_OP_EAGER": ("protocol", ["tw_am_send"]),
    "TW_OP_RENDEZVOUS": ("protocol", ["tw_am_send"]),
}

# ------------------------------------------------------------------------------------------- what the headers say


def text_of_headers():
    text = "\n".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    return re.sub(r"^\s*#(?:.*\\\n)*.*$", " ", text, flags=re.MULTILINE)


TEXT = text_of_headers()


def split(text, separator):
    """At separators that are in no parentheses."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == separator and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [part.strip() for part in [*parts, part] if part.strip()]


def name_and_type(declaration):
    pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", declaration)
    if pointer:
        return pointer.group(1), "function"
    declaration = re.sub(r"\[[^]]*\]", " *", declaration)
    name = re.search(r"(\w+)[\s*]*$", declaration)
    return name.group(1), declaration[: name.start()] + declaration[name.end() :]


def parameters_of_c():
    functions = {}
    for name, inside in re.findall(r"TW_(?:API|CHECKED)[^;(]*?\b(tw_\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*;", TEXT):
        given = [] if inside.strip() == "void" else split(inside, ",")
        functions[name] = [name_and_type(declaration) for declaration in given]
    return functions


def fields_of_c():
    structs = {}
    for name, inside in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", TEXT, re.DOTALL):
        fields = []
        for declaration in split(inside, ";"):
            fields += [name_and_type(part)[0] for part in split(declaration, ",")]
        structs[name] = fields
    return structs


FUNCTIONS, STRUCTS = parameters_of_c(), fields_of_c()
ENDING = re.compile(r"tw_\w+_(destroy|release|close)$")


def places_of(function):
    """Where Python has a function of C; none: it is not there by this name."""
    if function in CALLS:
        return CALLS[function]
    prefix, _, method = function.removeprefix("tw_").partition("_")
    owner = getattr(tw, BY_NAME.get(prefix, ""), None)
    if owner is not None and hasattr(owner, method):
        return [f"{BY_NAME[prefix]}.{method}"]
    return [function.removeprefix("tw_")] if hasattr(tw, function.removeprefix("tw_")) else []


def python_parameters(place):
    thing = tw
    for part in place.split("."):
        thing = inspect.getattr_static(thing, part) if inspect.isclass(thing) else getattr(thing, part)
    if isinstance(thing, (property, staticmethod)) or not callable(thing):
        thing = getattr(thing, "__func__", None)
    return set() if thing is None else set(inspect.signature(thing).parameters)


def is_waiting_form(place):
    """Without a time-out: the one that returns a Request."""
    return place.rpartition(".")[2].startswith("i") and hasattr(tw, place.partition(".")[0])


def wanted(function):
    """(what C has, what Python calls it) for every argument, option and flag of a function."""
    for index, (name, kind) in enumerate(FUNCTIONS[function]):
        struct = re.search(r"\b(tw_\w+_options)\b", kind)
        if struct:
            yield from wanted_options(function, struct.group(1))
            continue
        special = ARGUMENTS.get(function, {})
        if name in special:
            name_there = special[name]
        elif "*" in kind and kind.count("*") == 2 and "const" not in kind:
            continue  # where the made object goes
        elif index == 0 and kind.strip().startswith(("tw_", "const tw_")):
            name_there = "self or " + SAME_EVERYWHERE.get(name, name) if SAME_EVERYWHERE.get(name, name) else None
        else:
            name_there = SAME_EVERYWHERE.get(name, name)
        if name_there is not None:
            yield name, name_there


def wanted_options(function, struct):
    for field in STRUCTS[struct]:
        if field == "size":
            continue
        name = OPTIONS[struct].get(field, field)
        if isinstance(name, tuple):
            name = name[0] if function in name[1] else None
        if name is not None:
            yield f"{struct}.{field}", name
    if "flags" in STRUCTS[struct]:
        for flag, (name, functions) in FLAGS.items():
            if function in functions:
                yield flag, name


# ------------------------------------------------------------------------------------------- the comparison


def test_the_headers_are_read_whole():
    assert len(FUNCTIONS) == len(re.findall(r"\bTW_(?:API|CHECKED)\b", TEXT)) > 170
    assert {"rank", "count"} <= set(STRUCTS["tw_store_options"]) and "on_lost" in STRUCTS["tw_endpoint_options"]
    assert FUNCTIONS["tw_queue_call"][1] == ("fn", "function")


def test_the_tables_name_what_there_is():
    assert {*NOT_IN_PYTHON, *ARGUMENTS, *CALLS} <= set(FUNCTIONS)
    assert set(OPTIONS) == {struct for struct in STRUCTS if struct.endswith("_options")}
    for struct, fields in OPTIONS.items():
        assert set(fields) <= set(STRUCTS[struct]), struct
    for shared in ("tw_op_options", "tw_blocks_options"):
        assert set(STRUCTS[shared]) - {"size"} == set(OPTIONS[shared]), "each field says which functions have it"
    assert set(re.findall(r"\b(TW_OP_\w+) =", TEXT)) == set(FLAGS)
    for functions in [entry[1] for fields in OPTIONS.values() for entry in fields.values() if isinstance(entry, tuple)]:
        assert set(functions) <= set(FUNCTIONS)
    for function, name in EXTRA:
        assert name in python_parameters(places_of(function)[0])


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_python_has_a_function_with_all_its_arguments(function):
    if function in NOT_IN_PYTHON:
        return
    places = places_of(function)
    if not places and ENDING.fullmatch(function):
        return
    assert places, f"{function} is not in Python: add it, or say in NOT_IN_PYTHON why not"
    for place in places:
        there = python_parameters(place)
        for in_c, name in wanted(function):
            if name == "timeout" and is_waiting_form(place) and place.startswith(("Endpoint.i", "Group.i")):
                continue
            names = name.split(" or ")
            if "self" in names and (not there or place.count(".") == 1):
                continue
            assert set(names) & there, f"{function} has {in_c}; {place} has {sorted(there)}"


@pytest.mark.parametrize(
    "name", sorted(name for name in dir(_core.Endpoint) if name.startswith("i") and name[1:] in dir(aio.Endpoint))
)
def test_coroutines_have_the_same_arguments(name):
    there = inspect.signature(getattr(aio.Endpoint, name[1:])).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in there.values()):
        return
    assert set(inspect.signature(getattr(_core.Endpoint, name)).parameters) <= set(there)
