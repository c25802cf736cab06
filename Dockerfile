# One image for every target; FUNCTION_TARGET selects it. The server is functions/serving.py, which
# ends calls in flight in order on SIGTERM (infra/decisions/ says why not the framework's default).
FROM python:3.13-slim AS build
COPY requirements.txt /requirements.txt
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r /requirements.txt

FROM python:3.13-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin empanel
COPY --from=build /venv /venv
WORKDIR /app
COPY main.py ./
COPY functions functions
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
EXPOSE 8080
CMD ["python", "-m", "functions.serving"]
