# Targets: `cpu` (the default) and `cuda` serve, `train` trains and exports. docs/deploy.md describes their use.
#   docker build -t dragoman .
#   docker build -t dragoman:en-de --build-arg MODELS="en-de de-en" .                   with models inside
#   docker build -t dragoman:europe --build-arg MODELS="$(cat deploy/europe.txt)" .     with those of a list
# The serving images have no torch, no compiler and no root user. Dependencies are a layer below the code, so that a
# change of code does not reinstall them.
# The digest is of the index of all platforms.
ARG PYTHON_IMAGE=docker.io/library/python:3.11.15-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3

FROM ${PYTHON_IMAGE} AS base
# Without this variable, ONNX Runtime uploads usage data.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 ORT_DISABLE_TELEMETRY=1

# The environment has no pip, and so none of its vulnerabilities; the pip of the base image fills it.
FROM base AS build
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
RUN python -m venv --without-pip /opt/dragoman
COPY constraints.txt pyproject.toml deploy/requirements.py ./

# Hashes of every file that may be installed; `make locks` writes these lists. They leave no version open.
FROM build AS locked
ENV PIP_CONSTRAINT= PIP_REQUIRE_HASHES=1 PIP_NO_DEPS=1
COPY deploy/locks/ ./

FROM locked AS cpu-dependencies
# Nothing imports these tests, tools and dialects of databases, and ONNX Runtime has a second copy of itself for C.
RUN pip --python /opt/dragoman/bin/python install --requirement cpu.txt \
  && find /opt/dragoman/lib \( -path '*/numpy/*/tests' -o -path '*/numpy/distutils' -o -path '*/numpy/f2py' \
  -o -path '*/onnx/backend' -o -path '*/onnx/reference' -o -path '*/onnx/*.cc' -o -path '*/onnxruntime/datasets' \
  -o -path '*/onnxruntime/quantization' -o -path '*/onnxruntime/tools' -o -path '*/onnxruntime/transformers' \
  -o -path '*/onnxruntime/capi/libonnxruntime.so.*' -o -path '*/sqlalchemy/dialects/mssql' \
  -o -path '*/sqlalchemy/dialects/mysql' -o -path '*/sqlalchemy/dialects/oracle' -o -path '*/sqlalchemy/testing' \
  \) -prune -exec rm -r {} +

# Runs on the processor that builds and compiles for that of the image, in seconds where an emulator would take an hour.
FROM --platform=${BUILDPLATFORM} ${PYTHON_IMAGE} AS wheel
WORKDIR /source
COPY constraints.txt deploy/locks/ ./
# The backend that builds the wheel, and the compiler of its native library.
RUN pip install --no-cache-dir --require-hashes --no-deps --requirement build.txt
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY dragoman/ dragoman/
COPY model/ model/
COPY export/ export/
COPY hub/ hub/
COPY library/ library/
COPY protos/ protos/
COPY serve/ serve/
COPY loadtest/ loadtest/
ARG TARGETARCH
RUN case "$TARGETARCH" in arm64) machine=aarch64 ;; *) machine=x86_64 ;; esac \
  && _PYTHON_HOST_PLATFORM=linux-$machine pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# Has the layout of the environment, so that it can be copied into it.
FROM build AS code
COPY --from=wheel /wheels/ /wheels/
RUN pip --python /opt/dragoman/bin/python install --no-deps --prefix /code /wheels/*.whl

# Only training reads the text of the included model.
FROM code AS serving-code
RUN rm -r /code/lib/python*/site-packages/dragoman/model/everyday

# MODELS: names as of `dragoman pull`. The image holds their bundles and serves them without a network; empty: none.
# LICENSES.txt: the license of each, as the hub states it. README.md of a bundle: license, makers, addresses and hashes of
# the original files. The other arguments are addresses of mirrors.
FROM base AS pulled
ARG MODELS=
ARG HF_ENDPOINT=https://huggingface.co
ARG DRAGOMAN_FIREFOX_MODELS=
ARG ARGOS_PACKAGE_INDEX=
COPY --from=cpu-dependencies /opt/dragoman /opt/dragoman
COPY --from=serving-code /code /opt/dragoman
ENV PATH=/opt/dragoman/bin:$PATH DRAGOMAN_CACHE=/tmp/cache HF_HOME=/tmp/hub
# The commands run in any POSIX shell: images in the format of OCI have no instruction SHELL.
RUN mkdir /pulled && echo "$MODELS" > /tmp/names \
  && xargs --no-run-if-empty --arg-file=/tmp/names dragoman pull --to /pulled > /tmp/log \
  && cat /tmp/log \
  && if [ -s /tmp/log ]; then sed -n '/: license: /p' /tmp/log > /pulled/LICENSES.txt; fi \
  && rm -rf /tmp/cache /tmp/hub /tmp/log /tmp/names

# The base of both serving images; bundles change least often and are the lowest layer.
FROM base AS serving
# LICENSES: of the code and the included model, as an SPDX expression.
ARG LICENSES="Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT AND MPL-2.0 AND PostgreSQL"
LABEL org.opencontainers.image.title="Dragoman" \
  org.opencontainers.image.description="Neural machine translation with continuous batching, over gRPC and REST" \
  org.opencontainers.image.licenses="${LICENSES}" \
  org.opencontainers.image.documentation="Models have terms of their own. Those of the included one: see /bundles/included/README.md. Those of MODELS: see /models/LICENSES.txt, and /models/*/README.md for makers, addresses and hashes of the originals"
# BUNDLES: folder of the build context to include. BUNDLE: its bundle to serve by default.
ARG BUNDLES=bundles
ARG BUNDLE=included
# Readable by the user of the image, whatever the permissions in the build context.
COPY --chmod=755 ${BUNDLES}/ /bundles/
ENV PATH=/opt/dragoman/bin:$PATH DRAGOMAN_BUNDLE=/bundles/${BUNDLE} DRAGOMAN_ON_DEMAND_FROM=nobody
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
# Liveness only: a server that warms up or drains is healthy; /readyz is for load balancers.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-m", "dragoman.serve.commands.health"]
ENTRYPOINT ["dragoman"]
CMD ["serve"]

FROM serving AS cpu
ARG MODELS=
ARG SERVED=${MODELS:+/models}
ARG TERMS="${MODELS:+ AND LicenseRef-models}"
LABEL org.opencontainers.image.licenses="${LICENSES}${TERMS}"
COPY --from=pulled --chmod=755 /pulled/ /models/
ENV DRAGOMAN_BUNDLE=${SERVED:-${DRAGOMAN_BUNDLE}}
COPY --from=cpu-dependencies /opt/dragoman /opt/dragoman
COPY --from=serving-code /code /opt/dragoman
USER 10001:10001

# CUDA and cuDNN come from PyPI with ONNX Runtime; the driver comes from the host.
FROM locked AS cuda-dependencies
RUN pip --python /opt/dragoman/bin/python install --requirement cuda.txt

FROM serving AS cuda
# Rejects bundles for a CPU, so that no GPU is idle unnoticed. BUNDLES must contain a bundle of the variant `cuda`.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility DRAGOMAN_DEVICE=cuda
COPY --from=cuda-dependencies /opt/dragoman /opt/dragoman
COPY --from=serving-code /code /opt/dragoman
USER 10001:10001

FROM build AS train-dependencies
RUN python requirements.py cpu train export > requirements.txt \
  && pip --python /opt/dragoman/bin/python install --requirement requirements.txt \
    --extra-index-url https://download.pytorch.org/whl/cpu

FROM base AS train
COPY --from=train-dependencies /opt/dragoman /opt/dragoman
COPY --from=code /code /opt/dragoman
# Libraries have caches in the home folder, and a numeric user has none.
ENV PATH=/opt/dragoman/bin:$PATH HOME=/tmp
WORKDIR /work
USER 10001:10001
ENTRYPOINT ["dragoman"]
CMD ["--help"]

# The default. Old builders run every stage before the target; use `--target cpu` with them.
FROM cpu
