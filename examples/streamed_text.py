"""Prints a translation as the server decodes it, with generated gRPC code: `python -m examples.streamed_text TEXT`."""

import sys

import grpc

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.protos.translation_pb2_grpc import TranslationServiceStub

SERVER = "127.0.0.1:8001"


def main(text: str, server: str = SERVER) -> None:
    """Prints each part of the translation as it arrives; raises RpcError if the server rejects the text."""
    with grpc.insecure_channel(server) as channel:
        for event in TranslationServiceStub(channel).TranslateStream(TranslateRequest(text=[text]), timeout=30):
            if event.HasField("delta"):
                print(event.delta.text, end="", flush=True)
    print()


if __name__ == "__main__":
    main(sys.argv[1])
