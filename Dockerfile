# One image for every target; FUNCTION_TARGET selects it. The server is functions/serving.py, which
# ends calls in flight in order on SIGTERM (infra/decisions/ says why not the framework's default).
# The base is pinned by tag, so that a build takes its security fixes; what is deployed is pinned by
# the digest of the result. To pin the base too, give BASE with its digest.
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
COPY requirements.txt /requirements.txt
RUN python -m venv --without-pip /venv \
    && pip --python /venv/bin/python install --no-cache-dir --require-hashes --only-binary :all: -r /requirements.txt
WORKDIR /app
COPY main.py ./
COPY functions functions
# Compiled here: the account that runs may not write, and each cold start would compile again.
RUN python -m compileall -q .

FROM ${BASE}
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin empanel
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
EXPOSE 8080
CMD ["python", "-m", "functions.serving"]
