# The image of the millrace command:                 docker build -t millrace .
# The image of one of the example programs:          docker build --target example --build-arg EXAMPLE=window-count .
# A program of your own takes the same stages with its own package in place of ./examples/${EXAMPLE}.

FROM golang:1.26 AS source
WORKDIR /src
# The modules first: they change less often than the code.
COPY go.mod go.sum ./
RUN go mod download
COPY . .

FROM source AS build
ARG VERSION=dev
ARG COMMIT=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/millrace-stream/millrace.version=${VERSION} -X main.version=${VERSION} -X main.commit=${COMMIT}" -o /out/millrace ./cmd/millrace \
 && mkdir /out/state

FROM source AS build-example
ARG VERSION=dev
ARG EXAMPLE=window-count
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/millrace-stream/millrace.version=${VERSION}" -o /out/program ./examples/${EXAMPLE}

# Nothing but the static binary, the certificate authorities for TLS to brokers, and a state folder of the user's own.
FROM scratch AS base
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/millrace /millrace
COPY --from=build --chown=65532:65532 /out/state /var/lib/millrace
USER 65532:65532
# In a container the health check and Prometheus come from outside of its loopback.
ENV MILLRACE_STATE_DIR=/var/lib/millrace \
    MILLRACE_LISTEN=0.0.0.0:9644
VOLUME /var/lib/millrace
EXPOSE 9644
# Alive, not ready: a long restore is no reason to end the container.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 CMD ["/millrace", "healthcheck", "--url", "http://127.0.0.1:9644/livez"]
# SIGTERM: the running epoch is finished and committed, and the member leaves the group.
STOPSIGNAL SIGTERM

FROM base AS example
COPY --from=build-example /out/program /program
ENTRYPOINT ["/program"]

FROM base AS millrace
ENTRYPOINT ["/millrace"]
CMD ["help"]
