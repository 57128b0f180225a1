"""Locks that do not deadlock in a forked child."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import threading
import weakref

_LOCKS: weakref.WeakSet = weakref.WeakSet()


class ForkSafeLock:
    """Reentrant lock that a forked child does not inherit from other threads.

    A child of ``os.fork`` has only the thread that forked: a lock of another thread
    would never be released there, so it is recreated. A lock of the forking thread is
    retained.
    """

    def __init__(self):
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self):
        self._lock.acquire()
        return self

    def __exit__(self, *exc_info):
        self._lock.release()

    def renew(self):
        """Recreate the lock if another thread holds it."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=lambda: [lock.renew() for lock in _LOCKS])


# For state of torch that threads share: its random generators, one per device and
# process, and modules, which are in eval mode and have hooks during inference. One
# lock, so that a training that evaluates a network, and an evaluation that builds one,
# cannot deadlock.
TORCH_LOCK = ForkSafeLock()
