# Bindery on the embedded default: docker build -t bindery .
# Where no registry answers, scripts/make-base-image makes the base image first.
FROM debian:bookworm-slim AS build
WORKDIR /src
COPY scripts/install-deps scripts/install-deps
RUN scripts/install-deps
COPY CMakeLists.txt CMakePresets.json LICENSE ./
COPY cmake cmake
COPY src src
RUN cmake --workflow --preset release \
 && cmake --install build/release --strip --prefix /opt/bindery

FROM debian:bookworm-slim
# Tools for the jobs of the embedded sandbox, beyond a minimal Debian: --build-arg TOOLS="git python3"
ARG TOOLS=""
RUN apt-get -qq update \
 && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
      libcurl4 libevent-2.1-7 libevent-openssl-2.1-7 libevhtp0 libhttp-parser2.9 libjson-c5 \
      libmimalloc2.0 libnghttp2-14 libonig5 libpq5 libprotobuf-c1 libseccomp2 libsqlite3-0 libssl3 bubblewrap ca-certificates ${TOOLS} \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb \
 && groupadd --gid 10001 bindery \
 && useradd --uid 10001 --gid bindery --home-dir /var/lib/bindery --no-create-home bindery \
 && install -d -o bindery -g bindery -m 0700 /var/lib/bindery
COPY --from=build /opt/bindery/bin/ /usr/local/bin/
COPY LICENSE /usr/share/doc/bindery/LICENSE

USER 10001:10001
WORKDIR /var/lib/bindery
ENV BINDERY_LISTEN=0.0.0.0:5050 \
    BINDERY_DATA_DIR=/var/lib/bindery
VOLUME /var/lib/bindery
EXPOSE 5050
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["bindery", "health"]
ENTRYPOINT ["bindery"]
CMD ["serve"]
