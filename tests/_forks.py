"""Functions in a forked process: it costs no imports, and may be killed."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import signal
import sys
import time
import traceback

import pytest
from threadpoolctl import threadpool_limits

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def _start(function):
    child = os.fork()
    if child:
        return child
    try:
        threadpool_limits(1)  # threads of the parent are not in the child
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        function()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def forked(function, seconds=120):
    """Call a function in a forked process; return its exit code, -9 if it hangs."""
    child = _start(function)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_if(condition, function, seconds=120):
    """Call a function in a forked process, which is killed if a condition holds."""
    child = _start(function)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not condition():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
