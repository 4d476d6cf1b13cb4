# SPDX-License-Identifier: Apache-2.0
"""PyTorch: tensors as buffers, its streams before and behind operations, its graphs, tensors in objects."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

import thalweg as tw
from peers import connected, spawn

HERE, THERE = 0, torch.cuda.device_count() - 1
SIZES = [1, 4099, 65_537, 3_000_001]
LONG = 40_000_000  # clocks of a GPU: some 20 ms


def random_tensor(shape, dtype=torch.uint8, device=HERE):
    """Fresh random bits."""
    count = torch.Size(shape).numel() * dtype.itemsize
    bits = torch.randint(0, 256, (count,), dtype=torch.uint8, device=f"cuda:{device}")
    return (bits & 1 if dtype is torch.bool else bits).view(dtype).reshape(shape)


def bits(tensor):
    """On the host, comparable whatever the type."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()


def same(a, b):
    """The same type, shape and bits?"""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def late(tensor, payload, stream):
    """The payload lands in the tensor only after a long kernel of the stream."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        tensor.copy_(payload)


def warm(device):
    """Loads the kernels used here: a first launch may wait for the device, so never behind a request (docs/semantics.md)."""
    tensor = torch.zeros(3_000_100, dtype=torch.uint8, device=f"cuda:{device}")
    (~tensor).clone().copy_(tensor)
    torch.cuda._sleep(1)
    torch.cuda.synchronize(device)


def echo(endpoint, pipe, sizes):
    """Sends back, inverted by a kernel that nobody waits for, what it receives."""
    torch.cuda.set_device(THERE)
    warm(THERE)
    stream = torch.cuda.Stream()
    for size in sizes:
        with torch.cuda.stream(stream):
            tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
            received = endpoint.irecv(tensor, 1)
            received.before(stream)
            answer = ~tensor  # behind the message, in the stream
            sent = endpoint.isend(answer, 2)
            received.wait(20)
            sent.wait(20)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_messages_keep_the_order_of_streams(transport):
    warm(HERE)
    with connected(echo, SIZES, transport=transport) as (endpoint, _):
        for size in SIZES:
            stream, payload = torch.cuda.Stream(), random_tensor((size,))
            tensor, back = torch.full_like(payload, 0xA5), torch.full((size + 64,), 0x5A, dtype=torch.uint8, device="cuda")
            torch.cuda.synchronize()
            late(tensor, payload, stream)
            with torch.cuda.stream(stream):
                sent = endpoint.isend(tensor, 1)
                received = endpoint.irecv(back[32:-32], 2)
                received.before(stream)
                seen = back.clone()  # no wait of the host before this
            received.wait(20)
            sent.wait(20)
            stream.synchronize()
            assert same(seen[32:-32], ~payload)
            assert (seen[:32] == 0x5A).all() and (seen[-32:] == 0x5A).all()


def test_columns_of_a_matrix(worker, me):
    matrix, into = random_tensor((301, 77), torch.float64), torch.zeros((301, 40), dtype=torch.float64, device=f"cuda:{THERE}")
    request = me.isend(matrix[:, 13:30], 1)
    worker.recv(into[:, 5:22], 1, timeout=20)
    request.wait(20)
    assert same(into[:, 5:22], matrix[:, 13:30].to(into.device))
    assert (into[:, :5] == 0).all() and (into[:, 22:] == 0).all()


def target(endpoint, pipe, length):
    """Offers a tensor's memory, then sends what lies in it."""
    tensor = torch.full((length,), 0xA5, dtype=torch.uint8, device=f"cuda:{THERE}")
    torch.cuda.synchronize(THERE)
    with tw.Memory.register(endpoint.worker.context, tensor) as memory:
        pipe.send((memory.export(), tw.memory_query(tensor)))
        while not pipe.poll(0):
            endpoint.worker.wait(0.01)
        pipe.recv()
        pipe.send(tensor.cpu())


@pytest.mark.parametrize("segments", ["", "expandable_segments:True"])
def test_puts_and_gets_of_the_allocators_memory(monkeypatch, segments):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", segments)  # of the other process
    length = 5_000_003
    with connected(target, length, transport="shm") as (endpoint, pipe):
        key, place = pipe.recv()
        assert ("vmm" in place["place"]) == bool(segments), place
        remote = tw.RemoteMemory(endpoint, key)
        payload, back = random_tensor((4_000_001,)), torch.zeros(4_000_001, dtype=torch.uint8, device="cuda")
        endpoint.put(payload, remote, 77, visible=True)
        endpoint.get(back, remote, 77)
        torch.cuda.synchronize()
        assert same(back, payload)
        pipe.send("done")
        seen = pipe.recv()
        assert same(seen[77 : 77 + 4_000_001], payload.cpu())
        assert (seen[:77] == 0xA5).all() and (seen[77 + 4_000_001 :] == 0xA5).all()


def give_back(pipe):
    """Sends what it gets, received on its own GPU."""
    while (value := pipe.recv(device=THERE)) is not None:
        pipe.send(value)


def test_a_pipe_carries_tensors():
    ours, theirs = tw.Pipe()
    process = spawn.Process(target=give_back, args=(theirs,))
    process.start()
    kinds = [torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.int64]
    stream = torch.cuda.Stream()
    for turn, kind in enumerate(kinds):
        payload = random_tensor((37, 53 + 1000 * turn), kind)
        value = {
            "weights": torch.empty_like(payload).requires_grad_(kind.is_floating_point),
            "host": torch.rand(70_001),
            "step": turn,
        }
        torch.cuda.synchronize()
        with torch.no_grad():
            late(value["weights"], payload, stream)
        with torch.cuda.stream(stream):
            ours.send(value)
        back = ours.recv(device=HERE)
        assert back["weights"].device.index == HERE and back["weights"].requires_grad == kind.is_floating_point
        assert same(back["weights"], payload) and same(back["host"], value["host"]) and back["step"] == turn
    ours.send(None)
    process.join(20)
    assert process.exitcode == 0
    ours.close()


REPLAYS = 300


def replay_echo(endpoint, pipe, length):
    """Answers every replay of the other's graph by one of its own: receives, inverts, sends."""
    torch.cuda.set_device(THERE)
    context = endpoint.worker.context
    tensor = torch.zeros(length, dtype=torch.uint8, device="cuda")
    with tw.Plan(context, place=f"cuda:{THERE}") as there, tw.Plan(context, place=f"cuda:{THERE}") as back:
        there.recv(endpoint, tensor, 1)
        back.send(endpoint, tensor, 2)
        there.prepare(20)
        back.prepare(20)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream):
            there.trigger(stream)
            torch.bitwise_not(tensor, out=tensor)
            back.trigger(stream)
        with torch.cuda.stream(stream):
            for _ in range(REPLAYS):
                graph.replay()
        stream.synchronize()
        tw.stream_check(stream)
        pipe.recv()


def test_plans_in_graphs_of_torch():
    length = 70_001
    with connected(replay_echo, length, transport="shm") as (endpoint, pipe):
        context = endpoint.worker.context
        tensor = random_tensor((length,))
        answer, expected = torch.zeros_like(tensor), torch.zeros_like(tensor)
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        with tw.Plan(context, place=f"cuda:{HERE}") as plan:
            number = plan.send(endpoint, tensor, 1)
            plan.recv(endpoint, answer, 2, after=[number])
            plan.prepare(20)
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            with torch.cuda.graph(graph, stream=stream):
                tensor.random_(0, 256)  # fresh in every replay
                torch.bitwise_not(tensor, out=expected)
                answer.zero_()
                plan.trigger(stream)
                wrong += (answer != expected).sum()
            with torch.cuda.stream(stream):
                for _ in range(REPLAYS):
                    graph.replay()
            stream.synchronize()
            tw.stream_check(stream)
            assert wrong.item() == 0 and same(answer, expected) and answer.any()
        pipe.send("end")


def test_operations_on_a_stream_of_torch(worker, me, context):
    remote_tensor = torch.zeros(100_003, dtype=torch.uint8, device=f"cuda:{THERE}")
    source = random_tensor((90_001,))
    payload, back = source.clone(), torch.zeros_like(source)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with tw.Memory.register(context, remote_tensor) as memory, tw.Queue(context, f"cuda:{HERE}", stream=stream) as queue:
        remote = tw.RemoteMemory(me, memory.export())
        late(source, ~payload, stream)
        tw.put_on(queue, source, remote, 5)
        tw.get_on(queue, back, remote, 5)
        with torch.cuda.stream(stream):
            seen = back.clone()
        stream.synchronize()
        queue.check()
        assert same(seen, ~payload) and same(remote_tensor[5 : 5 + 90_001].to(seen.device), ~payload)
        assert (remote_tensor[:5] == 0).all() and (remote_tensor[5 + 90_001 :] == 0).all()
        remote.release()
