# The workers and the command line, without the embedded stack. Build: docker build -t sluice .
FROM python:3.11-slim AS build
RUN pip install --no-cache-dir --root-user-action=ignore uv==0.13.9
ENV UV_PROJECT_ENVIRONMENT=/opt/sluice UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_NO_CACHE=1
WORKDIR /build
# Dependencies change less often than code, so they are a layer of their own.
COPY pyproject.toml uv.lock ./
RUN uv sync --locked --no-default-groups --no-install-project
COPY README.md LICENSE ./
COPY topics topics
COPY flows flows
COPY infra infra
COPY workers workers
RUN uv sync --locked --no-default-groups --no-editable

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin sluice
COPY --from=build /opt/sluice /opt/sluice
ENV PATH=/opt/sluice/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/empty
USER 10001:10001
# The container's own network: compose, Kubernetes and Prometheus ask from outside. Nothing that is served is a secret.
ENV SLUICE_HTTP_PORT=8080 SLUICE_HTTP_HOST=0.0.0.0
EXPOSE 8080
# Alive is moving: 503 when work that could move has not.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8080/livez', timeout=8)"]
# SIGTERM drains: give it longer than SLUICE_DRAIN_S (25 s).
STOPSIGNAL SIGTERM
ENTRYPOINT ["sluice"]
CMD ["worker"]
