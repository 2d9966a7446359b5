# docker build -t deltawire . && docker run --rm deltawire demo
# A folder of the host: docker run --rm -v /srv/chain:/chain deltawire log /chain
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends make ca-certificates
COPY . /deltawire
WORKDIR /deltawire
RUN make deb

# The program and the libraries that it needs. Headers and the static library are for those who compile.
FROM debian:12-slim
COPY --from=build /deltawire/build-program/deltawire_*.deb /tmp/
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates /tmp/deltawire_*.deb \
 && rm -rf /tmp/deltawire_*.deb /var/lib/apt/lists/* /usr/include/deltawire /usr/lib/libdeltawire.a /usr/lib/cmake/deltawire /usr/lib/systemd/system/deltawire-*
ENTRYPOINT ["deltawire"]
CMD ["--help"]
