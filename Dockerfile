# dbdyno in a container, with all extras: docker build -t dbdyno . && docker run --rm dbdyno run lio
# For other processors: docker buildx build --platform linux/amd64,linux/arm64 -t dbdyno .
# docs/packages.md says which rights it takes to observe a server; packaging/compose.yaml is an example.

# The wheel is compiled on this machine's processor for that of the image; the last stage has neither Rust nor sources.
FROM --platform=$BUILDPLATFORM rust:1.95-bookworm AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
    && apt-get install -y --no-install-recommends npm=9.2.* python3-venv=3.11.* \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# buildx sets TARGETARCH; other builders build for the machine that they run on
ARG TARGETARCH
# the time of the commit, for the same bytes at any time: --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
ARG SOURCE_DATE_EPOCH
RUN case "${TARGETARCH:-$(dpkg --print-architecture)}" in \
        amd64) arch=x86_64 ;; \
        arm64) arch=aarch64 ;; \
        *) echo "no wheel for ${TARGETARCH}" >&2; exit 1 ;; \
    esac \
    && make wheel ARCH="$arch"

FROM python:3.11-slim-bookworm AS packages
COPY --from=build /src/requirements/runtime.lock /src/dist/*.whl /tmp/wheel/
RUN python -m venv /opt/dbdyno \
    && /opt/dbdyno/bin/pip install --no-cache-dir --require-hashes -r /tmp/wheel/runtime.lock \
    && /opt/dbdyno/bin/pip install --no-cache-dir --no-deps /tmp/wheel/*.whl \
    && /opt/dbdyno/bin/pip uninstall --yes setuptools pip

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="dbdyno" \
      org.opencontainers.image.description="A dynamometer for databases" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=packages /opt/dbdyno /opt/dbdyno
# The user may be that of a server in another container, so that dbdyno sees what the server sees: --build-arg UID=999
ARG UID=1000
RUN useradd --uid "$UID" --user-group --create-home dbdyno \
    && install -d -o "$UID" -g "$UID" -m 700 /home/dbdyno/.local /home/dbdyno/.local/share /home/dbdyno/.local/share/dbdyno
ENV PATH=/opt/dbdyno/bin:$PATH
USER $UID:$UID
WORKDIR /home/dbdyno
VOLUME /home/dbdyno/.local/share/dbdyno
ENTRYPOINT ["dbdyno"]
CMD ["--help"]
