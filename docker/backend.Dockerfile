# The service of examples/backend, with simsql as it is in the checkout.
FROM python:3.13-slim
WORKDIR /checkout
COPY LICENSE README.md pyproject.toml ./
COPY migrations migrations
COPY simsql simsql
COPY sql sql
COPY examples/backend examples/backend
RUN pip install --no-cache-dir . ./examples/backend
WORKDIR /checkout/examples/backend
USER 65534
EXPOSE 8000
CMD ["uvicorn", "app.main:app", "--host", "0.0.0.0", "--port", "8000"]
