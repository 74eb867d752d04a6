# Targets: `cpu` (the default) and `cuda` serve, `train` trains and exports. docs/deploy.md tells how to run them.
#   docker build -t dragoman .
# The serving images hold no torch, no compiler and no root. Dependencies lie in a layer below the code, so that a change
# of code neither reinstalls nor ships them again.
# The digest is that of the index of all platforms.
ARG PYTHON_IMAGE=docker.io/library/python:3.11.15-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3

FROM ${PYTHON_IMAGE} AS base
# ONNX Runtime reports its use to its makers unless it is told not to.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 ORT_DISABLE_TELEMETRY=1

# The environment is made without pip, whose own vulnerabilities nobody who serves needs; the base's pip fills it.
FROM base AS build
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
RUN python -m venv --without-pip /opt/dragoman
COPY constraints.txt pyproject.toml deploy/requirements.py ./

FROM build AS cpu-dependencies
RUN python requirements.py cpu tracing > requirements.txt \
  && pip --python /opt/dragoman/bin/python install --requirement requirements.txt

# Laid out like the environment, so that it can be copied into it.
FROM build AS code
COPY README.md LICENSE dragoman.py ./
COPY model/ model/
COPY export/ export/
COPY protos/ protos/
COPY serve/ serve/
COPY loadtest/ loadtest/
RUN pip --python /opt/dragoman/bin/python install --no-deps --prefix /code .

# What both serving images have in common; bundles change least often and lie lowest.
FROM base AS serving
LABEL org.opencontainers.image.title="Dragoman" \
  org.opencontainers.image.description="Neural machine translation with continuous batching, over gRPC and REST" \
  org.opencontainers.image.licenses="Apache-2.0"
# BUNDLES: the folder of the build context that is baked. BUNDLE: what of it is served without an argument.
ARG BUNDLES=bundles
ARG BUNDLE=multi30k
COPY ${BUNDLES}/ /bundles/
ENV PATH=/opt/dragoman/bin:$PATH DRAGOMAN_BUNDLE=/bundles/${BUNDLE}
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
# Liveness only: a server that warms up or drains is healthy. Ask /readyz before sending traffic. It asks this very
# container, whose certificate has another name.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-c", "\
from os import environ; from ssl import _create_unverified_context as trusting; \
from urllib.request import HTTPSHandler, ProxyHandler, build_opener; \
port = environ.get('DRAGOMAN_HTTP_PORT', '8000'); \
scheme = 'https' if environ.get('DRAGOMAN_TLS_CERTIFICATE_FILE') else 'http'; \
opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trusting())); \
opener.open(f'{scheme}://127.0.0.1:{port}/healthz', timeout=2)"]
ENTRYPOINT ["dragoman"]
CMD ["serve"]

FROM serving AS cpu
COPY --from=cpu-dependencies /opt/dragoman /opt/dragoman
COPY --from=code /code /opt/dragoman
USER 10001:10001

# CUDA and cuDNN come from PyPI with ONNX Runtime; the driver comes from the host.
FROM build AS cuda-dependencies
RUN python requirements.py cuda tracing > requirements.txt \
  && pip --python /opt/dragoman/bin/python install --requirement requirements.txt

FROM serving AS cuda
# It refuses bundles for a CPU: who pays for a GPU is to hear of it. BUNDLES has to hold one of the variant `cuda`.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility DRAGOMAN_DEVICE=cuda
COPY --from=cuda-dependencies /opt/dragoman /opt/dragoman
COPY --from=code /code /opt/dragoman
USER 10001:10001

FROM build AS train-dependencies
RUN python requirements.py cpu train export > requirements.txt \
  && pip --python /opt/dragoman/bin/python install --requirement requirements.txt \
    --extra-index-url https://download.pytorch.org/whl/cpu

FROM base AS train
COPY --from=train-dependencies /opt/dragoman /opt/dragoman
COPY --from=code /code /opt/dragoman
# Libraries keep caches in the home folder, which a numeric user has none of.
ENV PATH=/opt/dragoman/bin:$PATH HOME=/tmp
WORKDIR /work
USER 10001:10001
ENTRYPOINT ["dragoman"]
CMD ["--help"]

# The default. Builders that run every stage in front of their target, as older ones do, want `--target cpu` instead.
FROM cpu
