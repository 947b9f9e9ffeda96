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
# Says that the settings lead to a cluster that answers; it cannot say that the worker moves.
HEALTHCHECK --interval=60s --timeout=20s --start-period=30s --retries=3 CMD ["sluice", "topics", "plan", "--json"]
# SIGTERM drains: give it longer than SLUICE_DRAIN_S (25 s).
STOPSIGNAL SIGTERM
ENTRYPOINT ["sluice"]
CMD ["worker"]
