# `hmde` in a container; docs/deploy.md has the commands. Built of what .dockerignore lets in.
FROM python:3.11-slim AS build
WORKDIR /build
COPY . .
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --constraint constraints.txt --index-url https://download.pytorch.org/whl/cpu torch \
 && /venv/bin/pip install --no-cache-dir --constraint constraints.txt '.[server,files]'

FROM python:3.11-slim
COPY --from=build /venv /venv
RUN useradd --create-home search
USER search
WORKDIR /app
EXPOSE 8000
HEALTHCHECK --start-period=60s \
    CMD ["/venv/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["/venv/bin/hmde"]
CMD ["serve", "/index", "--model", "/model", "--host", "0.0.0.0"]
