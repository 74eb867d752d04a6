# The serving image: `docker build -t dragoman .`, then mount a bundle and run it:
#   docker run --rm --read-only -v ./bundle:/bundle:ro -p 8000:8000 -p 8001:8001 dragoman
# It holds no torch, no compiler and no root. Both stages share one base, so that the environment can be copied whole.
FROM python:3.11-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

FROM base AS build
WORKDIR /source
RUN python -m venv /opt/dragoman
COPY constraints.txt pyproject.toml README.md LICENSE dragoman.py ./
COPY model/ model/
COPY export/ export/
COPY protos/ protos/
COPY serve/ serve/
COPY loadtest/ loadtest/
RUN /opt/dragoman/bin/pip install --no-cache-dir --constraint constraints.txt ".[cpu]"

FROM base AS cpu
COPY --from=build /opt/dragoman /opt/dragoman
ENV PATH=/opt/dragoman/bin:$PATH
USER 10001:10001
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
# Liveness only: a server that warms up or drains is healthy. Ask /readyz before sending traffic.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-c", "\
from urllib.request import ProxyHandler, build_opener; \
build_opener(ProxyHandler({})).open('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["dragoman"]
CMD ["serve", "/bundle"]
