"""The child process of :class:`~orchestrator.coders.llama_server.LlamaServer`.

Run as a script with one JSON argument; writes the address it listens on to a file descriptor, then
serves until SIGTERM, or until its parent is gone. Imports nothing of this project, so that it
starts from a bare interpreter.
"""

import ctypes
import json
import os
import signal
import sys
from typing import Any

import xllamacpp

PR_SET_PDEATHSIG = 1
PROMPT_CACHE_MIB = 1024
"""llama.cpp would keep up to 8 GiB of evicted prompts in memory."""
PARENT_GONE = signal.SIGUSR1
WAITED = {signal.SIGTERM, signal.SIGINT, PARENT_GONE}


def parameters(options: dict[str, Any]) -> Any:
    """llama.cpp's parameters: loopback, a port that the kernel chooses, no polling threads.

    Context is divided evenly between the slots; a slot never takes another's share.
    """
    params = xllamacpp.CommonParams()
    params.model.path = options["weights"]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel = options["context_tokens"], options["parallel"]
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads, threads.poll = options["threads"], 0
    params.warmup = params.ui = params.endpoint_slots = False
    params.cache_ram_mib = PROMPT_CACHE_MIB
    return params


def follow_parent(parent: int) -> None:
    """Have the kernel signal this process when its parent ends; exit if it already has.

    The signal also comes when only the parent's starting *thread* ends, so it is a plain signal and
    :func:`serve` looks who the parent is, instead of SIGKILL.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(PARENT_GONE), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def serve(parent: int) -> None:
    """Wait for the end; the server's own threads do the work."""
    while signal.sigwait(WAITED) == PARENT_GONE:
        if os.getppid() != parent:
            os._exit(0)


def main() -> None:
    """Start the server, say where it listens, serve."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    options = json.loads(sys.argv[1])
    follow_parent(options["parent"])
    try:
        server = xllamacpp.Server(parameters(options))
    except RuntimeError as error:
        sys.exit(f"llama.cpp did not start with {options}: {error}")
    with os.fdopen(options["address_fd"], "w") as address:
        address.write(server.listening_address + "\n")
    serve(options["parent"])


if __name__ == "__main__":
    main()
