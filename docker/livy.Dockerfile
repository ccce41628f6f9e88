# The Apache Livy of `make livy`, with Spark and TensorFlow, for trying out: it asks nobody for a password.
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
        ca-certificates make maven openjdk-17-jdk-headless procps python3.11 python3.11-venv \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
WORKDIR /src
RUN make build/livy/livy-repl.jar
# The server runs in the background of this command, and the container as long as its health check can ask it.
CMD ["sh", "-c", "python3 tests/livy/rig.py start --port 8998 && exec sleep infinity"]
