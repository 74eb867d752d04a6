"""gRPC writes errors to standard error by itself: a pipe that no process reads stops no call."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse
from dragoman.serve.host.server_process import HOST, reserve_ports
from tests.support.certificates import Authority
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.processes import start_process

METHOD = "/dragoman.v1.TranslationService/Translate"
# gRPC writes about 200 bytes for each.
MORE_THAN_A_PIPE_HOLDS = 800


@contextmanager
def served(bundle_path: Path, authority: Authority, stderr: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yields a process with TLS, and its gRPC port."""
    with reserve_ports(0, 0) as (http_port, grpc_port):
        options = {**authority.settings(), "http_port": http_port, "grpc_port": grpc_port}
        given = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        with start_process(bundle_path, "open", *given, stderr=stderr) as process:
            eventually(lambda: translates(grpc_port, authority))
            yield process, grpc_port


def fail_handshake(port: int) -> None:
    """Sends plain bytes to a port with TLS and waits until the server closes the connection."""
    with socket.create_connection((HOST, port), WAIT_SECONDS) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        while connection.recv(1 << 16):
            pass


def translates(port: int, authority: Authority) -> bool:
    with grpc.secure_channel(f"{HOST}:{port}", authority.credentials()) as channel:
        call = channel.unary_unary(METHOD, TranslateRequest.SerializeToString, TranslateResponse.FromString)
        try:
            return bool(call(TranslateRequest(text=["alpha."]), timeout=WAIT_SECONDS).translations)
        except grpc.RpcError:
            return False


def test_failed_handshakes_stop_no_call_while_nobody_reads_the_log(bundle_path: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with served(bundle_path, authority, subprocess.PIPE) as (process, port):
        for _ in range(MORE_THAN_A_PIPE_HOLDS):
            fail_handshake(port)
        assert translates(port, authority)
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0


def test_a_reader_gets_the_lines_of_grpc(bundle_path: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    reading, writing = os.pipe()
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.extend(iter(lambda: os.read(reading, 1 << 16), b"")))
    reader.start()
    with served(bundle_path, authority, writing) as (process, port):
        os.close(writing)
        fail_handshake(port)
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    reader.join()
    os.close(reading)
    log = b"".join(received)
    assert b"Handshake failed" in log
    assert b'"event": "stopped"' in log
