# PostgreSQL whose first database, POSTGRES_DB, has the schema of simsql from the first start on.
# Built from the checkout: docker build --file docker/postgres.Dockerfile .
FROM python:3.13-slim AS schema
WORKDIR /checkout
COPY LICENSE README.md pyproject.toml ./
COPY migrations migrations
COPY simsql simsql
COPY sql sql
RUN pip install --no-cache-dir './[cli]' && simsql install --sql > 10-simsql.sql

FROM postgres:18
COPY --from=schema /checkout/10-simsql.sql /docker-entrypoint-initdb.d/
