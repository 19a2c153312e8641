"""Training steps: how large they are, how fast they are made, and how fast they run against torch and JAX."""

from __future__ import annotations

import functools
import importlib
import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import irkit as ik
from benchmarks.measure import Row, Table, cpu, paired
from irkit.ir.module import Module
from irkit.passes.training.runner import runner

__all__ = ["BATCH", "NETS", "Network", "cnn", "mlp", "nodes", "run"]

LARGEST, BUILD, FIRST, SLOWEST = 4.0, 1.0, 0.5, 1.05
SGD_RATE, ADAMW_RATE, DECAY = 0.01, 0.001, 0.01

Array = np.ndarray[Any, Any]


class Network:
    """A classifier under construction, with random weights that the peers get, too.

    Attributes:
        b: its builder.
        weights: per name.
    """

    def __init__(self, name: str) -> None:
        self.b = ik.Builder(name)
        self.weights: dict[str, Array] = {}
        self._random = np.random.default_rng(0)

    def weight(self, *shape: int) -> ik.Tensor:
        """A parameter: He-random, a vector zeros."""
        fan_in = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        scale = np.sqrt(2 / fan_in) if len(shape) > 1 else 0
        name = f"p{len(self.weights)}"
        self.weights[name] = (self._random.standard_normal(shape) * scale).astype(np.float32)
        return self.b.initializer(self.weights[name], name)


def mlp() -> tuple[Module, list[Array]]:
    """784-512-512-10."""
    net = Network("mlp")
    b, h = net.b, net.b.input("x", "float32", ["batch", 784])
    for inner, outer in ((784, 512), (512, 512)):
        h = b.Relu(h @ net.weight(inner, outer) + net.weight(outer))
    b.output(h @ net.weight(512, 10) + net.weight(10), "logits")
    return b.module(), list(net.weights.values())


def cnn() -> tuple[Module, list[Array]]:
    """Two 3x3 convolutions of 32 and 64 channels, each with a Relu and a 2x2 pool, and a dense layer."""
    net = Network("cnn")
    b, h = net.b, net.b.input("x", "float32", ["batch", 1, 28, 28])
    for inner, outer in ((1, 32), (32, 64)):
        h = b.Relu(b.Conv(h, net.weight(outer, inner, 3, 3), net.weight(outer), pads=[1, 1, 1, 1]))
        h = b.MaxPool(h, kernel_shape=[2, 2], strides=[2, 2])
    b.output(b.Flatten(h) @ net.weight(64 * 7 * 7, 10) + net.weight(10), "logits")
    return b.module(), list(net.weights.values())


NETS: dict[str, Callable[[], tuple[Module, list[Array]]]] = {"MLP": mlp, "CNN": cnn}
BATCH = {"MLP": (128, 784), "CNN": (64, 1, 28, 28)}


def optimizer(name: str) -> Any:
    """The optimizer of a step; torch's and JAX's are set up alike."""
    if name == "SGD":
        return ik.optimizers.SGD(SGD_RATE)
    return ik.optimizers.AdamW(ADAMW_RATE, weight_decay=DECAY, epsilon=1e-8, epsilon_hat=False)


def made(net: Module, name: str) -> Any:
    """The training step of a net: softmax cross-entropy, this optimizer, symbolic batch."""
    return ik.training_step(net, "softmax-cross-entropy", optimizer(name))


def nodes(module: Module) -> int:
    """The nodes of the ONNX graph, constants aside."""
    return sum(node.op_type != "Constant" for node in module.to_onnx().graph.node)


# The same step elsewhere: each a function that takes one step and returns the loss before it.


def ours(step: Any, x: Array, target: Array) -> Callable[[], float]:
    """On onnxruntime, the state in two sets of buffers that take turns."""
    held = runner(step.module, "onnxruntime", threads=1)
    feeds = dict(zip(step.batch_inputs, (x, target), strict=True))
    return lambda: float(held.step(feeds)["loss"])


def torch_step(torch: Any, net: str, name: str, weights: list[Array], x: Array, target: Array) -> Callable[[], float]:
    """In torch, eager."""
    torch.set_num_threads(1)
    nn = torch.nn
    layers = (
        [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
        if net == "MLP"
        else [
            *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64 * 7 * 7, 10)),
        ]
    )
    model = nn.Sequential(*layers)
    for parameter, value in zip(model.parameters(), weights, strict=True):
        parameter.data = torch.from_numpy(np.array(value.T if value.ndim == 2 else value, order="C"))
    make = torch.optim.SGD if name == "SGD" else torch.optim.AdamW
    options = {"lr": SGD_RATE} if name == "SGD" else {"lr": ADAMW_RATE, "weight_decay": DECAY}
    rule = make(model.parameters(), **options)
    batch, labels = torch.from_numpy(x), torch.from_numpy(target)

    def step() -> float:
        rule.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        rule.step()
        return loss.item()

    return step


def jax_step(
    jax: Any, net: str, name: str, weights: list[Array], x: Array, target: Array, donate: bool = False
) -> Callable[[], float]:
    """In JAX, compiled; perhaps with the state donated, so that the next one takes its memory."""
    jnp, lax = jax.numpy, jax.lax
    jit = functools.partial(jax.jit, donate_argnums=0 if donate else ())

    def forward(p: list[Any], h: Any) -> Any:
        for i in (0, 2):
            if net == "MLP":
                h = jax.nn.relu(h @ p[i] + p[i + 1])
            else:
                h = lax.conv_general_dilated(h, p[i], (1, 1), "SAME") + p[i + 1][None, :, None, None]
                h = lax.reduce_window(jax.nn.relu(h), -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return h.reshape(h.shape[0], -1) @ p[4] + p[5]

    def loss(p: list[Any], h: Any, t: Any) -> Any:
        return -jax.nn.log_softmax(forward(p, h))[jnp.arange(len(t)), t].mean()

    @jit
    def sgd(state: Any, h: Any, t: Any) -> Any:
        (p,) = state
        value, grads = jax.value_and_grad(loss)(p, h, t)
        return value, ([w - SGD_RATE * g for w, g in zip(p, grads, strict=True)],)

    @jit
    def adamw(state: Any, h: Any, t: Any) -> Any:
        p, m, v, n = state
        value, grads = jax.value_and_grad(loss)(p, h, t)
        n = n + 1
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grads, strict=True)]
        v = [0.999 * a + 0.001 * g * g for a, g in zip(v, grads, strict=True)]
        of_m, of_v = 1 - 0.9**n, 1 - 0.999**n
        moved = [
            w * (1 - ADAMW_RATE * DECAY) - ADAMW_RATE * (a / of_m) / (jnp.sqrt(c / of_v) + 1e-8)
            for w, a, c in zip(p, m, v, strict=True)
        ]
        return value, (moved, m, v, n)

    p, m, v = ([jnp.array(w * kept) for w in weights] for kept in (1, 0, 0))
    state: Any = (p,) if name == "SGD" else (p, m, v, jnp.float32(0))
    h, t = jnp.asarray(x), jnp.asarray(target)

    def step() -> float:
        nonlocal state
        value, state = (sgd if name == "SGD" else adamw)(state, h, t)
        jax.block_until_ready(state)
        return float(value)

    return step


PEERS: list[tuple[str, str, Callable[..., Callable[[], float]]]] = [
    ("torch", "torch eager", torch_step),
    ("jax", "JAX jit", jax_step),
    ("jax", "JAX jit, state donated", functools.partial(jax_step, donate=True)),
]
"""Package, title, and what makes a step."""


def _peer(name: str) -> ModuleType | None:
    """A peer, told to use one thread; None where it is not installed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def _against(net: str, name: str, turns: int) -> list[Row]:
    """One net and optimizer: its size, what making it takes, and a step against the peers."""
    module, weights = NETS[net]()
    random = np.random.default_rng(1)
    x = random.standard_normal(BATCH[net], np.float32)
    target = random.integers(0, 10, BATCH[net][:1])
    made(module, name)  # what the first use of anything loads is not counted
    start = time.process_time()
    step = made(module, name)
    model = step.module.to_onnx().SerializeToString()
    build = time.process_time() - start
    forward, size = nodes(ik.optimize(step.evaluation, "O2")), nodes(step.module)
    label = f"{net}, {name}"
    found: list[Callable[[], float]] = []
    first = cpu(lambda: found.append(ours(step, x, target)) or found[0]())
    bar = LARGEST if name == "SGD" else None
    rows = [
        Row(
            f"{label}: nodes of the step and of its forward graph",
            str(size),
            str(forward),
            size / forward,
            f"<= {bar:.0f}" if bar else "",
            size / forward <= bar if bar else None,
        ),
        Row(
            f"{label}: build and export",
            f"{build:.2f} s ({len(model) >> 10} kB)",
            "",
            None,
            f"<= {BUILD:.0f} s",
            build <= BUILD,
        ),
        Row(f"{label}: session and first step", f"{first:.2f} s", "", None, f"<= {FIRST} s", first <= FIRST),
    ]
    many = 5 if net == "MLP" else 1
    for peer, title, make in PEERS:
        package = _peer(peer)
        if package is None:
            rows.append(Row(f"{label}: a step", "", f"{title}: not installed"))
            continue
        mine, theirs = ours(step, x, target), make(package, net, name, weights, x, target)
        for _ in range(3):
            np.testing.assert_allclose(mine(), theirs(), rtol=1e-3, err_msg=f"{label} does not do what {title} does")
        pair = paired(lambda f=mine: [f() for _ in range(many)], lambda f=theirs: [f() for _ in range(many)], turns)
        times = f"{pair.ours / many * 1e3:.2f} ms", f"{title} {pair.other / many * 1e3:.2f} ms"
        rows.append(Row(f"{label}: a step", *times, pair.ratio, f"<= {SLOWEST}", pair.ratio <= SLOWEST))
    return rows


def run(quick: bool = False) -> Table:
    """Measures both nets with both optimizers; ``quick`` takes fewer turns."""
    turns = 5 if quick else 25
    rows = [row for net in NETS for name in ("SGD", "AdamW") for row in _against(net, name, turns)]
    return Table(
        "Training",
        "Softmax cross-entropy; the MLP (784-512-512-10) on batches of 128, the CNN (3x3 convolutions of 32 and 64 "
        "channels, each with a Relu and a 2x2 pool, and a dense layer) on 64 images of 28x28. The batch is a symbolic "
        "size. A step is forward, backward and update, on one thread; the loss is read after each. CPU time of the "
        f"process, the median of {turns} turns in which both sides run one after the other; the ratio is the median "
        "over the turns. Both sides begin with the same weights, and are made sure to have the same losses. Nodes are "
        "counted without constants. AdamW adds 11 to 12 ops for each of the six parameters, whatever the net. JAX is "
        "measured twice: with its state donated, the next one takes the memory of the last.",
        "peer, or the forward graph",
        rows,
    )
