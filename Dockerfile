# docker build --tag uqeval .
# docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/data" uqeval evaluate preds.parquet --html report.html
FROM python:3.13-slim AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
ENV PIP_CONSTRAINT=/build/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The wheel of a failed C++ build is py3-none-any, and an image without native kernels is none.
RUN pip wheel --no-deps --wheel-dir /wheels . && \
    python -m venv /opt/uqeval && \
    /opt/uqeval/bin/pip install /wheels/uqeval-*-cp*.whl && \
    UQEVAL_KERNELS=native /opt/uqeval/bin/uqeval doctor

FROM python:3.13-slim
COPY --from=build /opt/uqeval /opt/uqeval
# Also for a --user that has no home.
ENV PATH=/opt/uqeval/bin:$PATH XDG_CACHE_HOME=/tmp/cache
RUN useradd --uid 10001 --create-home uqeval
USER 10001
WORKDIR /data
ENTRYPOINT ["uqeval"]
CMD ["--help"]
