"""Training of torch networks: skorch net, epochs, and state as arrays."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import warnings
from contextlib import contextmanager

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.helper import predefined_split
from torch.nn import functional
from torch.optim import lr_scheduler

from skood.exceptions import SkoodWarning
from skood.nn._default_modules import ModuleBuilder
from skood.nn._training_data import TrainingSet, row_batches
from skood.utils._torch import (
    autocast,
    evaluating,
    parameter_device,
    parameter_dtype,
    resolve_device,
    row_chunks,
    to_tensor,
    training,
)

OPTIMIZERS = {
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
}

# With fewer samples a matrix product uses other kernels, which round differently.
_MIN_SAMPLES = 32

# Below this many multiply-adds a batch, threads cost more than they save (and many
# times more when the cores are busy).
_MIN_WORK_FOR_THREADS = 2**23

# --- the net -----------------------------------------------------------------


class WeightedCrossEntropy(torch.nn.CrossEntropyLoss):
    """Mean over the batch of weight times cross-entropy."""

    def forward(self, logits, target):
        """Return the loss for a target of classes, or of (classes, weights).

        Logits (n_rows, n_members, n_classes) of several members: the mean over the
        members.
        """
        if logits.ndim == 3:
            of_members = [self(member, target) for member in logits.unbind(1)]
            return torch.stack(of_members).mean()
        if isinstance(target, torch.Tensor):
            return super().forward(logits, target)
        codes, weight = target
        losses = functional.cross_entropy(logits, codes, reduction="none")
        return (losses * weight.to(losses.dtype)).mean()


class WeightedCriterion(torch.nn.Module):
    """Mean over the batch of weight times the losses ``criterion(logits, codes)``.

    The criterion is copied, and its parameters are not trained.
    """

    def __init__(self, criterion):
        super().__init__()
        self.criterion = copy.deepcopy(criterion)
        self.requires_grad_(False)

    def forward(self, logits, target):
        """Return the loss for a target of classes, or of (classes, weights)."""
        if isinstance(target, torch.Tensor):
            return self.losses(logits, target).mean()
        codes, weight = target
        losses = self.losses(logits, codes)
        return (losses * weight.to(losses.dtype)).mean()

    def losses(self, logits, codes):
        """Return the losses of the samples, or raise if they are something else."""
        losses = self.criterion(logits, codes)
        if not isinstance(losses, torch.Tensor) or losses.shape != codes.shape:
            description = (
                f"a tensor of shape {tuple(losses.shape)}"
                if isinstance(losses, torch.Tensor)
                else f"an object of type {type(losses).__name__}"
            )
            raise ValueError(
                "criterion(logits, codes) must return a tensor with a loss for each "
                f"sample: of shape {tuple(codes.shape)} for logits of shape "
                f"{tuple(logits.shape)}, got {description}. Losses of torch do with "
                "reduction='none'."
            )
        return losses


class _Batches:
    """Iterator over the batches of a `TrainingSet`, each gathered with one indexing."""

    def __init__(self, samples, batch_size, shuffle):
        self.samples = samples
        self.batch_size = batch_size
        self.shuffle = shuffle

    def __iter__(self):
        for indices in row_batches(len(self.samples), self.batch_size, self.shuffle):
            yield self.samples[indices]


class TrainingNet(NeuralNetClassifier):
    """Skorch net that trains on `TrainingSet` and records the results of an epoch."""

    # set while training: schedule over batches, augmentation, bfloat16 on CUDA
    batch_schedule_ = None
    transform_ = None
    mixed_precision_ = False

    _builder = ModuleBuilder

    @classmethod
    def from_config(cls, config, device):
        """Return an initialized net for a config of `_fit_new`; call it in `training`.

        The module is built by ``_builder``, which checks its output.
        """
        builder = cls._builder(
            config["module"],
            config["module_params"],
            config["input_shape"],
            config["n_classes"],
        )
        optimizer, options = OPTIMIZERS[config["optimizer"]]
        return cls(
            builder,
            criterion=cls._loss(config.get("criterion")),
            optimizer=optimizer,
            optimizer__weight_decay=config["weight_decay"],
            lr=config["lr"],
            max_epochs=config["max_epochs"],
            batch_size=config["batch_size"],
            iterator_train__shuffle=True,
            train_split=None,
            classes=list(range(config["n_classes"])),
            callbacks="disable",
            verbose=0,
            device=device,
            **{f"optimizer__{name}": value for name, value in options.items()},
        ).initialize()

    @staticmethod
    def _loss(criterion):
        """Return the class of the training loss, or an instance, for a `criterion`."""
        if criterion is None:
            return WeightedCrossEntropy
        return WeightedCriterion(criterion)

    def train_epochs(self, samples, *, epochs, bar, options, valid=None):
        """Train in place for some epochs; return their results, a list of dicts.

        `options` is a `TrainingOptions` without None. With validation samples `valid`
        it stops `n_iter_no_change` epochs after the loss fell by `tol`, and restores
        the weights with the smallest.
        """
        batches = row_batches(len(samples), self.batch_size, shuffle=False)
        schedule, by_batch = make_schedule(
            options.lr_schedule, self.optimizer_, epochs, sum(1 for _ in batches)
        )
        self.batch_schedule_ = schedule if by_batch else None
        self.transform_ = options.transform
        on_cuda = parameter_device(self.module_, self.device).type == "cuda"
        self.mixed_precision_ = options.mixed_precision and on_cuda
        self.train_split = None if valid is None else predefined_split(valid)
        history: list[dict] = []
        best_loss, best_state, waited = np.inf, None, 0
        self.notify("on_train_begin", X=samples, y=None)
        while len(history) < epochs and waited < options.n_iter_no_change:
            with suitable_threads(self, samples):
                self.fit_loop(samples, epochs=1)
            done = self.last_epoch()
            history.append(done)
            check_finite(self.module_, done["train_loss"], len(history))
            if schedule is not None and not by_batch:
                schedule.step()
            if valid is not None:
                fell = done["valid_loss"] < best_loss - options.tol
                waited = 0 if fell else waited + 1
                if done["valid_loss"] < best_loss:
                    best_loss = done["valid_loss"]
                    best_state = copy.deepcopy(self.module_.state_dict())
            bar.set_postfix(**{name: f"{value:.3g}" for name, value in done.items()})
            bar.update(1)
        self.notify("on_train_end", X=samples, y=None)
        self.batch_schedule_ = self.transform_ = self.train_split = None
        self.mixed_precision_ = False
        if best_state is not None:
            self.module_.load_state_dict(best_state)
        self.module_.eval()
        return history

    def get_iterator(self, dataset, training=False):
        """Gather the batches of `TrainingSet` at once; other data as skorch does."""
        if isinstance(dataset, TrainingSet):
            return _Batches(dataset, self.batch_size, shuffle=training)
        return super().get_iterator(dataset, training=training)

    def infer(self, x, **fit_params):
        """Run the module on a batch in the precision of its parameters."""
        x = to_tensor(x, self.device, parameter_dtype(self.module_))
        if self.transform_ is not None and self.module_.training:
            x = _transformed(self.transform_, x)
        if not self.mixed_precision_:
            return self.module_(x, **fit_params)
        if x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.module_(x, **fit_params).float()

    def on_batch_end(self, net, batch=None, training=False, **step):
        """Record the learning rate and the hits; step a schedule over batches."""
        if training:
            lr = self.optimizer_.param_groups[0]["lr"]
            self.history.record_batch("lr", float(lr))
            if self.batch_schedule_ is not None:
                self.batch_schedule_.step()
        elif isinstance(batch[1], tuple):
            self._record_hits(step["y_pred"], batch[1][0])

    def _record_hits(self, logits, codes):
        self.history.record_batch("valid_hits", self.hits(logits, codes))

    def hits(self, logits, codes):
        """Return the number of samples whose class is predicted."""
        predicted = logits.argmax(dim=1).cpu().numpy()
        return int((predicted == codes).sum())

    def last_epoch(self):
        """Return the losses, the accuracy and the learning rate of the last epoch."""
        batches = list(self.history[-1]["batches"])
        self.history[-1]["batches"].clear()  # else they accumulate over the epochs

        def total(name, weight=None):
            return sum(b[name] * b.get(weight, 1) for b in batches if name in b)

        row = {
            "train_loss": total("train_loss", "train_batch_size")
            / total("train_batch_size")
        }
        n_valid = total("valid_batch_size")
        if n_valid:
            row["valid_loss"] = total("valid_loss", "valid_batch_size") / n_valid
            if any("valid_hits" in b for b in batches):
                row["valid_accuracy"] = total("valid_hits") / n_valid
        row["lr"] = next(b["lr"] for b in reversed(batches) if "lr" in b)
        for name, value in row.items():
            self.history.record(name, value)
        return row


def _transformed(transform, x):
    """Return an augmented batch, or raise if its shape changed."""
    augmented = transform(x)
    if not isinstance(augmented, torch.Tensor) or augmented.shape != x.shape:
        shape = tuple(getattr(augmented, "shape", ()))
        raise ValueError(
            f"transform(batch) must return a tensor of the shape of the batch, "
            f"{tuple(x.shape)}, got an object of type {type(augmented).__name__} of "
            f"shape {shape}."
        )
    return augmented


# --- the epochs --------------------------------------------------------------


def make_schedule(name, optimizer, epochs, batches_per_epoch):
    """Return the torch scheduler of a name, and whether it steps after each batch."""
    if name is None:
        return None, False
    if name == "cosine_steps":
        steps = epochs * batches_per_epoch
        return lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps), True
    if name == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs), False
    if name == "step":
        third = max(1, -(-epochs // 3))
        return lr_scheduler.StepLR(optimizer, step_size=third, gamma=0.1), False
    peak = optimizer.param_groups[0]["lr"]
    steps = epochs * batches_per_epoch
    schedule = lr_scheduler.OneCycleLR(
        optimizer, max_lr=peak, total_steps=steps, cycle_momentum=False
    )
    return schedule, True


@contextmanager
def suitable_threads(net, samples):
    """Train on one thread if the work of a batch is too small to be divided."""
    n_threads = torch.get_num_threads()
    # a linear layer uses each weight once per sample, a convolution once per pixel
    per_row = sum(parameter.numel() for parameter in net.module_.parameters())
    per_row *= int(np.prod(samples.inputs.shape[2:]))
    if min(net.batch_size, len(samples)) * per_row < _MIN_WORK_FOR_THREADS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


@contextmanager
def restored_on_error(net):
    """Restore weights and optimizer if the block fails or is interrupted."""
    module, optimizer = net.module_, net.optimizer_
    before = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
    try:
        yield
    except BaseException:
        module.load_state_dict(before[0])
        optimizer.load_state_dict(before[1])
        module.eval()
        raise


def check_finite(module, loss, epoch):
    """Raise if training has diverged."""
    finite = [torch.isfinite(weight).all() for weight in module.parameters()]
    # one wait for a GPU
    if not (np.isfinite(loss) and (not finite or torch.stack(finite).all())):
        raise ValueError(
            f"Training diverged: in epoch {epoch} the loss was {loss}, or a weight "
            f"became NaN or infinite. Lower lr, or scale the features (for instance "
            f"with sklearn.preprocessing.StandardScaler)."
        )


# --- running it ---------------------------------------------------------------


def forward(net, X, function=None, row_bytes=0):
    """Return the float64 outputs of `function`, by default the module, batch by batch.

    `row_bytes` is the memory per sample, if larger than estimated from the input.
    """
    module = net.module_
    function = function or module
    device = parameter_device(module, net.device)
    dtype = parameter_dtype(module)
    logits = None
    # a network needs several times the memory of its input; a batch that fitted
    # in training fits here
    row_bytes = max(row_bytes, 16 * 4 * int(np.prod(X.shape[1:])))
    budget = max(64 * 2**20, net.batch_size * row_bytes)
    with torch.no_grad(), evaluating(module), autocast(device.type):
        for chunk in row_chunks(len(X), row_bytes, budget):
            # a copy: a module may work in place
            batch = to_tensor(X[chunk]).to(device, dtype, copy=True)
            n_samples = len(batch)
            if batch.ndim == 2 and n_samples < _MIN_SAMPLES:
                batch = torch.cat(
                    [batch, batch[-1:].expand(_MIN_SAMPLES - n_samples, -1)]
                )
            outputs = function(batch)[:n_samples].cpu().to(torch.float64).numpy()
            if logits is None:
                logits = np.empty((len(X), *outputs.shape[1:]))
            logits[chunk] = outputs
    return logits


# --- the net as arrays -------------------------------------------------------


def _map(convert, kind, tree):
    """Apply `convert` to each leaf of a `kind` in nested dicts, lists and tuples."""
    if isinstance(tree, kind):
        return convert(tree)
    if isinstance(tree, dict):
        return {key: _map(convert, kind, value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_map(convert, kind, value) for value in tree)
    return tree


def _to_array(tensor):
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # loading casts it back, without loss
        tensor = tensor.float()
    return tensor.numpy().copy()


def state_to_numpy(net):
    """Return the weights and the state of the optimizer with ndarrays as leaves."""
    state = {
        "module": dict(net.module_.state_dict()),
        "optimizer": net.optimizer_.state_dict(),
    }
    return _map(_to_array, torch.Tensor, state)


def load_state(net, state):
    """Restore, in place, a state from `state_to_numpy`."""
    state = _map(torch.tensor, np.ndarray, state)
    module, weights = net.module_, state["module"]
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        new = weights.get(name, tensor)
        if new.is_floating_point() and tensor.dtype != torch.bfloat16:  # as float32
            tensor.data = tensor.data.to(new.dtype)
    module.load_state_dict(weights)
    net.optimizer_.load_state_dict(state["optimizer"])
    module.eval()


def restore_net(config, state, device, kind=TrainingNet):
    """Rebuild a net and load a state of `state_to_numpy`.

    On the CPU, with a warning, if `device` is not available.
    """
    try:
        target = resolve_device(device)
    except ValueError:
        target = torch.device("cpu")
        warnings.warn(
            f"This network was trained on {device!r}, which this machine does not "
            f"have; it is loaded on the CPU.",
            SkoodWarning,
            stacklevel=3,
        )
    # seeded as in fit, so that random values that a module does not save are restored
    with training(config["seed"], target):
        net = kind.from_config(config, target)
        load_state(net, state)
    return net
