# The broker alone, as an image: no shell is needed to run it, nothing in it can be written, and no user in it is root.
#
#   docker build -f examples/container/broker.Dockerfile -t swarm-broker .
#
# Run it with examples/container/run-broker; docs/broker-install.md tells what each option keeps.
ARG PYTHON=python:3.12-slim-bookworm
FROM ${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY broker broker
COPY swarm swarm
COPY pool pool
COPY sandbox sandbox
RUN python -m venv /opt/swarm-broker && /opt/swarm-broker/bin/pip install --no-cache-dir .

FROM ${PYTHON}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && find / -xdev -perm /6000 -type f -exec chmod a-s {} +
# Numbers, not names: they are what the kernel tells the broker about its callers, and what owns the folders outside.
RUN groupadd --gid 964 swarm-broker \
 && useradd --uid 964 --gid 964 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin swarm-broker
COPY --from=build /opt/swarm-broker /opt/swarm-broker
USER 964:964
WORKDIR /
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/swarm-broker/bin/swarm-broker"]
CMD ["serve", "--config", "/etc/swarm-broker/broker.toml"]
