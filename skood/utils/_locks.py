"""Locks that do not hang in a forked child."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import threading
import weakref

__all__ = ["TORCH_LOCK", "ForkSafeLock"]

_LOCKS: weakref.WeakSet = weakref.WeakSet()


class ForkSafeLock:
    """A reentrant lock that a forked child does not inherit from other threads.

    A child of ``os.fork`` has the thread that forked and no other. A lock that another
    thread held would never be released there, so that it is made anew; one that the
    forking thread holds stays as it is.
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
        """Make it anew if another thread than this one holds it."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


def _renew_all():
    for lock in _LOCKS:
        lock.renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_renew_all)


# For what threads share in torch: its random generators, of which a process has one per
# device, and modules, which are in eval mode and have hooks while they are read. It is
# one lock, so that a training that reads a network and a reading that builds one cannot
# wait for each other.
TORCH_LOCK = ForkSafeLock()
