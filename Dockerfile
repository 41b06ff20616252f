# dbdyno in a container: docker build -t dbdyno . && docker run --rm dbdyno run lio
# The wheel is built in the first stage; the second has neither Rust nor the sources.
FROM rust:1.95-bookworm AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv=3.11.* \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN make wheel

FROM python:3.11-slim-bookworm
COPY --from=build /src/requirements/runtime.lock /src/dist/*.whl /tmp/wheel/
RUN pip install --no-cache-dir --require-hashes -r /tmp/wheel/runtime.lock \
    && pip install --no-cache-dir --no-deps /tmp/wheel/*.whl \
    && rm -r /tmp/wheel \
    && useradd --uid 1000 --create-home dbdyno
USER 1000:1000
WORKDIR /home/dbdyno
RUN mkdir -p .local/share/dbdyno
VOLUME /home/dbdyno/.local/share/dbdyno
ENTRYPOINT ["dbdyno"]
CMD ["--help"]
