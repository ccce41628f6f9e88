# JupyterLab with ddl_magics, an embedded Spark with its Java, TensorFlow, and sparkmagic for a Livy elsewhere:
#   docker build -t ddl-magics . && docker run --rm -p 127.0.0.1:8888:8888 ddl-magics

FROM node:22-bookworm-slim AS node

FROM python:3.11-slim-bookworm AS wheels
# sparkmagic compiles a Kerberos library.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev libkrb5-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules /usr/local/lib/node_modules
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
COPY . /src
WORKDIR /src
# The build hook makes the front end with npm.
RUN pip wheel --no-cache-dir -c constraints.txt --wheel-dir /wheels ".[local,sparkmagic,search]" six

FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends libgssapi-krb5-2 libkrb5-dev procps \
    && rm -rf /var/lib/apt/lists/* && useradd --create-home jovyan
COPY --from=wheels /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels "ddl_magics[local,sparkmagic,search]" six \
    && rm -rf /wheels
USER jovyan
WORKDIR /home/jovyan
COPY --chown=jovyan notebooks/ notebooks/
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
