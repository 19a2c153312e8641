"""Writes ``goldens.npz``: what torch and Keras make of the cases in ``cases.py`` and the networks in ``nets.py``.

Run where torch and Keras are installed: ``python tests/unit/training/make_goldens.py``. The tests need neither.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import keras
import numpy as np
import torch
import torch.nn.functional as F

from tests.unit.training import cases, nets

torch.set_num_threads(1)
HERE = Path(__file__).parent


def linear(x, w, name):
    return F.linear(x, w[f"{name}.w"], w[f"{name}.b"])


def mlp(x, w):
    return linear(F.relu(linear(F.relu(linear(x, w, "fc1")), w, "fc2")), w, "fc3")


def cnn(x, w):
    for name in ("c1", "c2"):
        x = F.max_pool2d(F.relu(F.conv2d(x, w[f"{name}.w"], w[f"{name}.b"], padding=1)), 2)
    return linear(x.flatten(1), w, "fc")


def mobile(x, w):
    def norm(value, name):
        return F.batch_norm(value, None, None, w[f"{name}.w"], w[f"{name}.b"], training=True, eps=1e-5)

    x = F.relu6(norm(F.conv2d(x, w["stem.w"], padding=1, stride=2), "bn0"))
    for i in (1, 2):
        y = F.relu6(norm(F.conv2d(x, w[f"expand{i}.w"]), f"bn{i}a"))
        y = F.relu6(norm(F.conv2d(y, w[f"depth{i}.w"], padding=1, groups=16), f"bn{i}b"))
        x = x + norm(F.conv2d(y, w[f"project{i}.w"]), f"bn{i}c")
    return linear(x.mean((2, 3)), w, "fc")


def lstm(x, w):
    start = torch.zeros(1, len(x), 12)
    flat = [w["x.w"], w["h.w"], w["x.b"], w["h.b"]]
    _, last, _ = torch.lstm(x, (start, start), flat, True, 1, 0.0, True, False, True)
    return linear(last[0], w, "fc")


def transformer(x, w):
    def norm(value, name):
        return F.layer_norm(value, (16,), w[f"{name}.w"], w[f"{name}.b"], eps=1e-5)

    x = F.embedding(x, w["embed"]) + w["position"]
    for i in (1, 2):
        parts = linear(norm(x, f"ln{i}a"), w, f"qkv{i}").chunk(3, -1)
        q, k, v = (p.reshape(*p.shape[:2], 2, 8).transpose(1, 2) for p in parts)
        mixed = torch.softmax(q @ k.transpose(-1, -2) / np.sqrt(8), -1) @ v
        x = x + linear(mixed.transpose(1, 2).flatten(2), w, f"out{i}")
        x = x + linear(F.gelu(linear(norm(x, f"ln{i}b"), w, f"up{i}")), w, f"down{i}")
    return linear(norm(x, "ln").mean(1), w, "fc")


FORWARD = {"mlp": mlp, "cnn": cnn, "mobile": mobile, "lstm": lstm, "transformer": transformer}
TORCH_OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=2e-3, weight_decay=0.01, eps=1e-8),
}


def run(net: str, optimizer: str) -> np.ndarray:
    """The loss at each step."""
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in nets.NETS[net].weights().items()}
    rule = TORCH_OPTIMIZERS[optimizer](list(weights.values()))
    found = []
    for x, y in nets.NETS[net].batches():
        rule.zero_grad()
        loss = F.cross_entropy(FORWARD[net](torch.tensor(x), weights), torch.tensor(y))
        loss.backward()
        rule.step()
        found.append(loss.item())
    return np.asarray(found, np.float32)


def keras_optimizer(case: cases.OptimizerCase) -> np.ndarray:
    rule = getattr(keras.optimizers, case.keras)(learning_rate=case.options["learning_rate"], **case.keras_options)
    variables = [keras.Variable(w) for w in cases.start()]
    found = []
    for grads in cases.gradients():
        rule.apply([keras.ops.convert_to_tensor(g) for g in grads], variables)
        found.append(np.concatenate([v.numpy().reshape(-1) for v in variables]))
    return np.stack(found)


def torch_optimizer(case: cases.OptimizerCase) -> np.ndarray:
    parameters = [torch.tensor(w, requires_grad=True) for w in cases.start()]
    rule = getattr(torch.optim, case.torch)(parameters, **case.torch_options)
    found = []
    for grads in cases.gradients():
        for p, g in zip(parameters, grads, strict=True):
            p.grad = torch.tensor(g)
        rule.step()
        found.append(np.concatenate([p.detach().numpy().reshape(-1) for p in parameters]))
    return np.stack(found)


def loss_values(case: cases.LossCase) -> tuple[np.ndarray, np.ndarray]:
    """The loss and its gradient."""
    prediction = torch.tensor(case.prediction, requires_grad=True)
    target = torch.tensor(case.target)
    weight = None if case.weight is None else torch.tensor(case.weight)
    if case.keras:
        made = getattr(keras.losses, case.keras)(**case.keras_options)
        value = made(target, prediction, sample_weight=weight)
    else:
        options = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in case.torch_options.items()}
        value = getattr(F, case.torch)(prediction, target, **options)
    total = value.sum()
    total.backward()
    return value.detach().numpy(), prediction.grad.numpy()


def metric_values(case: cases.MetricCase) -> np.ndarray:
    made = getattr(keras.metrics, case.keras)(**case.keras_options)
    found = []
    for target, prediction, weight in cases.metric_batches(case):
        made.update_state(target, prediction, sample_weight=weight)
        found.append(np.asarray(keras.ops.convert_to_numpy(made.result())).reshape(-1)[:1])
    return np.concatenate(found)


def schedule_values(case: cases.ScheduleCase) -> np.ndarray:
    if case.keras:
        made = getattr(keras.optimizers.schedules, case.keras)(**case.keras_options)
        return np.asarray([float(made(step)) for step in cases.SCHEDULE_STEPS], np.float32)
    rule = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    made = torch.optim.lr_scheduler.OneCycleLR(rule, **case.keras_options, cycle_momentum=False)
    found = []
    for _ in range(max(cases.SCHEDULE_STEPS) + 1):
        found.append(rule.param_groups[0]["lr"])
        rule.step()
        if len(found) <= max(cases.SCHEDULE_STEPS):
            made.step()
    return np.asarray([found[i] for i in cases.SCHEDULE_STEPS], np.float32)


def main() -> None:
    found: dict[str, np.ndarray] = {}
    for net in nets.NETS:
        for optimizer in nets.OPTIMIZERS:
            found[f"run/{net}/{optimizer}"] = run(net, optimizer)
    for name, case in cases.OPTIMIZERS.items():
        if case.keras:
            found[f"optimizer/{name}/keras"] = keras_optimizer(case)
        if case.torch:
            found[f"optimizer/{name}/torch"] = torch_optimizer(case)
    for name, case in cases.LOSSES.items():
        found[f"loss/{name}"], found[f"loss/{name}/gradient"] = loss_values(case)
    for name, case in cases.METRICS.items():
        found[f"metric/{name}"] = metric_values(case)
    for name, case in cases.SCHEDULES.items():
        found[f"schedule/{name}"] = schedule_values(case)
    np.savez_compressed(HERE / "goldens.npz", **found)
    print(f"{len(found)} arrays, keras {keras.__version__}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
